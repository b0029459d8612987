import importlib
import io
import stat
import tarfile
import zipfile

import pytest

from kinfold.data import unpack


def tar_with(path, *members, mode="w"):
    with tarfile.open(path, mode) as tape:
        for member, content in members:
            member.size = len(content)
            tape.addfile(member, io.BytesIO(content))
    return path


def entry(name, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = link
    return member


@pytest.mark.parametrize(("ending", "mode"), [("tar", "w"), ("tgz", "w:gz"), ("tar.xz", "w:xz"), ("tar.bz2", "w:bz2")])
def test_tars_are_unpacked(tmp_path, ending, mode):
    archive = tar_with(
        tmp_path / f"a.{ending}", (entry("./", tarfile.DIRTYPE), b""), (entry("birds/wren.txt"), b"wren"), mode=mode
    )
    folder = unpack(archive, tmp_path / "out")
    assert (folder / "birds/wren.txt").read_bytes() == b"wren"


def test_zips_are_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive_file:
        archive_file.writestr("birds/", "")
        archive_file.writestr("birds/wren.txt", "wren")
    assert (unpack(tmp_path / "a.zip", tmp_path / "out") / "birds/wren.txt").read_text() == "wren"


@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "a/../../out.txt", "C:\\out.txt", "a\\..\\..\\out.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_paths_that_lead_out_are_refused_before_anything_is_written(tmp_path, name, kind):
    archive = tmp_path / f"a.{kind}"
    if kind == "tar":
        tar_with(archive, (entry("good.txt"), b"x"), (entry(name), b"x"))
    else:
        with zipfile.ZipFile(archive, "w") as archive_file:
            archive_file.writestr("good.txt", "x")
            archive_file.writestr(zipfile.ZipInfo(name), "x")
    with pytest.raises(ValueError, match="leads out of the folder"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.txt", "b/../../secret.txt"])
def test_links_that_lead_out_are_refused(tmp_path, kind, target):
    (tmp_path / "secret.txt").write_text("secret")
    archive = tar_with(tmp_path / "a.tar", (entry("link", kind, target), b""))
    with pytest.raises(ValueError, match="leads out of the folder"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "target"), [(tarfile.SYMTYPE, "../wren.txt"), (tarfile.LNKTYPE, "wren.txt")])
def test_links_inside_become_copies(tmp_path, kind, target):
    archive = tar_with(tmp_path / "a.tar", (entry("sub/link.txt", kind, target), b""), (entry("wren.txt"), b"wren"))
    copy = unpack(archive, tmp_path / "out") / "sub/link.txt"
    assert copy.read_text() == "wren"
    assert not copy.is_symlink()


def test_files_cannot_be_written_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "door").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    archive = tar_with(tmp_path / "a.tar", (entry("door/x.txt"), b"x"))
    with pytest.raises(ValueError, match="by a link that is there already"):
        unpack(archive, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "out" / "file.txt").symlink_to(tmp_path / "elsewhere" / "file.txt")
    for archive in (
        tar_with(tmp_path / "c.tar", (entry("file.txt"), b"x")),
        tar_with(tmp_path / "d.tar", (entry("y"), b"y"), (entry("file.txt", tarfile.SYMTYPE, "y"), b"")),
    ):
        with pytest.raises(ValueError, match="by a link that is there already"):
            unpack(archive, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())
    # a chain of links, each harmless alone, leads nowhere either
    archive = tar_with(
        tmp_path / "b.tar",
        (entry("d/e/a", tarfile.SYMTYPE, "b/../../.."), b""),
        (entry("d/e/b", tarfile.SYMTYPE, "../.."), b""),
        (entry("d/e/a/x.txt"), b"x"),
    )
    with pytest.raises(ValueError, match="refused"):
        unpack(archive, tmp_path / "deep" / "out")
    assert not list((tmp_path / "deep").glob("*.txt"))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path, kind):
    archive = tar_with(tmp_path / "a.tar", (entry("device", kind), b""))
    with pytest.raises(ValueError, match="is a device or a pipe"):
        unpack(archive, tmp_path / "out")


def test_links_in_zips_and_encrypted_zips_are_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive_file:
        archive_file.writestr(link, "/etc/passwd")
    with pytest.raises(ValueError, match="is a link or a device"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive_file:
        archive_file.writestr("x.txt", "x")
    content = bytearray((tmp_path / "b.zip").read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(ValueError, match="is encrypted"):
        unpack(tmp_path / "b.zip", tmp_path / "out")


def test_broken_and_foreign_archives_are_explained(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        unpack(tmp_path / "none.tar", tmp_path)
    (tmp_path / "page.tgz").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match="neither a tar nor a zip"):
        unpack(tmp_path / "page.tgz", tmp_path)
    noise = bytes(range(256)) * 400
    archive = tar_with(tmp_path / "a.tgz", (entry("one"), noise), (entry("two"), noise[::-1]), mode="w:gz")
    archive.write_bytes(archive.read_bytes()[:-300])
    with pytest.raises(ValueError, match="cut short or corrupt"):
        unpack(archive, tmp_path / "out")


def zeros(path, size, kind):
    """An archive with one file of zeros, a thousand times smaller than that."""
    if kind == "zip":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive_file,
            archive_file.open("zeros.bin", "w") as file,
        ):
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
        return path
    member = entry("zeros.bin")
    member.size = size
    with tarfile.open(path, f"w:{kind}") as tape, open("/dev/zero", "rb") as source:  # type: ignore[call-overload]
        tape.addfile(member, source)
    return path


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2", "xz"])
def test_an_archive_that_grows_a_thousand_times_is_refused_before_anything_is_written(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(importlib.import_module("kinfold.data.archives"), "ALWAYS_ALLOWED", 1 << 20)
    archive = zeros(tmp_path / "bomb", 16 << 20, kind)
    with pytest.raises(ValueError, match=r"bomb is refused: its [0-9,]+ bytes unpack to more than .*limit=BYTES"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unpack(archive, tmp_path / "out", limit=17 << 20)
    assert (tmp_path / "out" / "zeros.bin").stat().st_size == 16 << 20


def test_a_megabyte_that_unpacks_to_a_gigabyte_is_refused_by_default(tmp_path):
    archive = tmp_path / "bomb.zip"
    block = zeros(tmp_path / "block.zip", 1 << 20, "zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "block.zip") as archive_file:
        (member,) = archive_file.infolist()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as archive_file:
        for number in range(1024):
            info = zipfile.ZipInfo(f"{number}.bin")
            info.compress_type = zipfile.ZIP_DEFLATED
            archive_file.writestr(info, bytes(1 << 20) if number == 0 else b"")
        # as many more of the same, without the time that it takes to write them
        for info in archive_file.infolist()[1:]:
            info.file_size, info.compress_size, info.CRC = member.file_size, member.compress_size, member.CRC
            info.header_offset = archive_file.infolist()[0].header_offset
    assert archive.stat().st_size < len(block) + (1 << 20)
    with pytest.raises(ValueError, match="unpack to more than 268,435,456"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_copies_of_links_and_empty_entries_count(tmp_path):
    links = [(entry(f"{number}.bin", tarfile.SYMTYPE, "wren.bin"), b"") for number in range(100)]
    archive = tar_with(tmp_path / "links.tar", (entry("wren.bin"), bytes(10_000)), *links)
    with pytest.raises(ValueError, match="unpack to more than 500,000"):
        unpack(archive, tmp_path / "out", limit=500_000)
    empty = [(entry(f"{number}.txt"), b"") for number in range(1000)]
    archive = tar_with(tmp_path / "empty.tar", *empty)
    with pytest.raises(ValueError, match="unpack to more than 500,000"):
        unpack(archive, tmp_path / "out", limit=500_000)
    assert not (tmp_path / "out").exists()


def test_a_huge_header_is_not_read_into_memory(tmp_path):
    header = entry("long", tarfile.XHDTYPE)
    header.size = 20 << 20
    with tarfile.open(tmp_path / "header.tgz", "w:gz") as tape, open("/dev/zero", "rb") as source:
        tape.addfile(header, source)
    with pytest.raises(ValueError, match=r"header.tgz is refused: it has a header of 20,971,520 bytes"):
        unpack(tmp_path / "header.tgz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
