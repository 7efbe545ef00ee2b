"""Tables of the program, from its JSON."""

import html
import json
from collections.abc import Sequence


def _tuned_row(layer, log):
    """One row of ``convlab tune``: the layer, its verdict, and the chosen candidate's fields."""
    row = {name: layer[name] for name in ("layer", "problem", "pass", "dtype", "count", "verdict")
           if name in layer}
    if "epilogue" in layer:
        row["epilogue"] = layer["epilogue"]
    chosen = dict(layer.get("chosen") or {})
    layouts = chosen.pop("layouts", None)
    if layouts:
        row["x_layout"], row["y_layout"] = layouts
    row.update((name, value) for name, value in chosen.items() if not isinstance(value, list))
    row["ratio_low"], row["ratio"], row["ratio_high"] = layer.get("ratio") or (None, None, None)
    if layer.get("log_ms"):
        row[log + "_ms"], row["convlab_ms"] = layer["log_ms"], layer["convlab_ms"]
        row["speedup"] = layer["log_ms"] / layer["convlab_ms"] if layer["convlab_ms"] else None
    if layer.get("reason"):
        row["reason"] = layer["reason"]
    return row


class Table(Sequence):
    """Rows as dicts, one a layer and pass: ``table[0]["algo"]``, ``for row in table``.

    ``json`` is the whole document, as ``convlab VERB --format json`` prints it: the provenance, and of
    ``tune`` every candidate of each layer and the totals. Times are in ms. Of a log with times,
    ``log_ms`` is what all runs of the row took there, ``convlab_ms`` what they take by its choice, and
    ``speedup`` is their ratio; of what ``convlab.torch.capture`` saw, ``torch_ms`` stands for ``log_ms``.
    """

    _SHOWN = ("layer", "problem", "pass", "count", "algo", "config", "x_layout", "y_layout", "ms",
              "eff_gflops", "rel_error", "verdict", "ratio", "log_ms", "torch_ms", "convlab_ms",
              "speedup", "what", "found", "remedy")

    def __init__(self, document, log="log"):
        self.json, self._log = document, log
        if "layers" in document:
            self.rows = [_tuned_row(layer, log) for layer in document["layers"]]
        else:
            self.rows = [dict(row) for row in document.get("rows", [])]

    @classmethod
    def parse(cls, text):
        """A table from the JSON's text."""
        return cls(json.loads(text))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def columns(self):
        """The names of all columns, in the rows' order."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_pandas(self):
        """A ``pandas.DataFrame`` of the rows. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns())

    def _cells(self):
        names = [name for name in self.columns() if name in self._SHOWN]
        names = [name for name in names if any(row.get(name) not in (None, "") for row in self.rows)]
        return names, [[_shown(row.get(name)) for name in names] for row in self.rows]

    def _remarks(self):
        """Lines below the rows: the totals of a log, as the program prints them."""
        log = self.json.get("totals", {}).get("log")
        if not log:
            return []
        line = f"{self._log} {log['log_ms']:.4g} ms, convlab {log['convlab_ms']:.4g} ms"
        line += f", {log['ratio']:.2f}×" if log["ratio"] else ""
        line += f", in {log['rows']} of {log['of']} rows" if log["rows"] != log["of"] else ""
        return [line + (f", {log['predicted']} of them predicted" if log["predicted"] else "")]

    def __repr__(self):
        names, cells = self._cells()
        lines = [names, *cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        rows = ("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                for line in lines)
        return "\n".join([*rows, *self._remarks()])

    def _repr_html_(self):
        names, cells = self._cells()

        def line(kind, texts):
            return "<tr>" + "".join(f"<{kind}>{html.escape(t)}</{kind}>" for t in texts) + "</tr>"

        return ("<table>" + line("th", names) + "".join(line("td", row) for row in cells) +
                "</table>" + shown_html(self._remarks()))


def shown_html(lines):
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _shown(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
