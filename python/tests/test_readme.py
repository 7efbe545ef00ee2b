"""The README's Python is Python that runs."""

import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(block, names)
    assert (tmp_path / "table.csv").read_text().count("\n") == 2
    assert len(names["dw"]) == 64 and "mb1ic64ih14" in capsys.readouterr().out
