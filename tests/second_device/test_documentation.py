"""The snippets about the device run, with the output that they state."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "devices.md"


def test_snippets_print_what_they_say(capsys):
    for snippet in re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        exec(compile(snippet, PAGE.name, "exec"), {})
        printed = capsys.readouterr().out
        stated = re.findall(r"print\(.*\)  # (.*)", snippet)
        assert stated
        assert printed.splitlines() == stated
