"""Tables in Markdown, and charts in text and by gnuplot."""

import itertools
import json
import pathlib
import subprocess


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def bars(title, values, unit):
    """One bar chart, drawn in text: name and value."""
    most = max(values.values())
    width = max(len(name) for name in values)
    lines = [f"{name:<{width}}  {'#' * round(50 * value / most)} {value:.1f}"
             for name, value in values.items()]
    return f"{title}, {unit}\n\n```\n" + "\n".join(lines) + "\n```\n"


MARKS = json.loads((pathlib.Path(__file__).parents[1] / "reports" / "algo_marks.json").read_text())
# What is no algorithm: greys, and tones of a scale in order, each of its own lightness.
GREYS = ["#303030", "#c8c8c8", "#707070", "#e4e4e4", "#505050"]
TONES = ["#00204d", "#2b4a7a", "#5d6d7e", "#8c8769", "#b0943a"]
HATCHES = {"fwd": "solid", "bwd_d": "pattern 4", "bwd_w": "pattern 5"}


def fills(names):
    """gnuplot's fill and colour for each of `names`: algorithms, as in the program's charts, with
    their pass in the hatch ("direct bwd_d"); others have greys."""
    greys, clauses = itertools.cycle(GREYS), []
    for name in names:
        algo, _, which = name.partition(" ")
        known = MARKS["algos"].get(algo)
        clauses.append(f"fs {HATCHES.get(which, 'solid')} border rgb 'white' "
                       f"lc rgb '{known['colour'] if known else next(greys)}'")
    return clauses


def draw(args, name, settings, plots, data):
    """name.svg in --plots. `plots` are clauses for `plot`; "$data" is the table in them, whose
    cells are numbers, texts, or None for what is not there."""
    if not args.plots:
        return
    args.plots.mkdir(parents=True, exist_ok=True)
    path = args.plots / f"{name}.svg"
    cell = lambda value: '"?"' if value is None else json.dumps(value)
    rows = "\n".join(" ".join(cell(value) for value in row) for row in data)
    script = (f"set terminal svg size 900,480 dynamic noenhanced background rgb 'white'\n"
              f"set output {json.dumps(str(path))}\nset datafile missing '?'\n"
              f"$data << EOD\n{rows}\nEOD\nset key outside right\nset grid ytics\n{settings}\n"
              f"plot {', '.join(plots)}\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def curves(args, name, title, x_label, y_label, x, series):
    """A curve for each of `series`, named "whose what", over the logarithm of x: tone and mark for
    the what, dashes for the whose."""
    points, labels = (7, 5, 9, 11, 13), [label.split(" ", 1) for label in series]
    whose, what = (list(dict.fromkeys(part)) for part in zip(*labels))
    plots = [f"$data using 1:{i} with linespoints lc rgb '{TONES[what.index(b) % len(TONES)]}' "
             f"pt {points[what.index(b) % len(points)]} dt {whose.index(a) + 1} "
             f"title {json.dumps(f'{a} {b}')}" for i, (a, b) in enumerate(labels, 2)]
    draw(args, name, f"set title {json.dumps(title)}\nset logscale x 2\n"
         f"set xlabel {json.dumps(x_label)}\nset ylabel {json.dumps(y_label)}\nset yrange [0:]",
         plots, [[n, *(values[row] for values in series.values())] for row, n in enumerate(x)])


def stacks(args, name, title, y_label, x, parts):
    """A stack of `parts` for each of x; with one part, plain bars."""
    plots = [f"$data using {i}{':xtic(1)' if i == 2 else ''} {fill} title {json.dumps(part)}"
             for i, (part, fill) in enumerate(zip(parts, fills(parts)), 2)]
    draw(args, name, f"set title {json.dumps(title)}\nset style data histograms\n"
         f"set style histogram rowstacked\nset boxwidth 0.7\n"
         f"set ylabel {json.dumps(y_label)}\nset yrange [0:]\nset xtics rotate by -30",
         plots, [[str(n), *(values[row] for values in parts.values())] for row, n in enumerate(x)])
