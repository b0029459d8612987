"""The numbers of a paper beside those of a benchmark."""

import shutil

from kinfold.files.documents import write_result
from kinfold.report import collect_content
from kinfold.report.figures.tables import format_tables


def test_published_values_are_shown_beside_ours(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny")
    rows = [
        {
            "row": "triplet",
            "label": "Triplet",
            "quoted": None,
            "published": {"recall@1": [63.6, 0.3]},
            "printed": {"recall@1": "63.60 ± 0.30"},
            "caveats": ["a"],
        },
        {
            "row": "other",
            "label": "Other",
            "quoted": "Song 2016",
            "published": {"recall@1": 55, "map@r": "unreadable"},
            "caveats": [],
        },
    ]
    about = {
        "table": "dro/table1",
        "source": "Table 1",
        "title": "Recall",
        "data": "tiny",
        "notes": ["small scale: data.root: left out -> /home/ann/birds.npz"],
    }
    write_result(tmp_path / "tiny" / "published.json", {**about, "caveats": ["c"], "rows": rows})
    (table,) = collect_content(tmp_path / "tiny")["tables"]
    printed = {row["method"]: row["cells"]["recall@1"]["published"] for row in table["rows"]}
    assert printed == {"contrastive": None, "triplet": 63.6, "Other": 55.0}
    assert {row["method"]: row["cells"]["recall@1"]["printed"] for row in table["rows"]}["triplet"] == "63.60"
    exported = dict(format_tables({"tables": [table]}))
    assert "| 63.60 |" in exported[f"table {table['caption']}"]["md"]
    assert table["rows"][2]["cells"]["map@r"]["published"] == "unreadable"
    assert [row["quoted"] for row in table["rows"]] == [None, None, "Song 2016"]
    assert table["notes"][-4:] == [
        "published: Recall (dro/table1, Table 1)",
        "small scale: data.root: left out -> birds.npz",
        "c",
        "Triplet: a",
    ]
