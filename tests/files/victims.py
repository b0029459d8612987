"""What must not change, whatever the links of a folder point at."""


def victim_is_unchanged(folder):
    victim = folder.parent / "victim"
    return [path.name for path in victim.iterdir()] == ["file"] and (victim / "file").read_text() == "precious"
