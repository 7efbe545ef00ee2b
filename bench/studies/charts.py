"""Tables in Markdown, and charts in text and by gnuplot."""

import json
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
    """A curve for each of `series`, over the logarithm of x."""
    colours = {}
    plots = []
    for i, label in enumerate(series, 2):
        whose, what = label.split(" ", 1)
        colour = colours.setdefault(what, len(colours) + 1)
        plots.append(f"$data using 1:{i} with linespoints lc {colour} dt "
                     f"{1 if whose == 'own' else 2} pt {7 if whose == 'own' else 6} "
                     f"title {json.dumps(label)}")
    draw(args, name, f"set title {json.dumps(title)}\nset logscale x 2\n"
         f"set xlabel {json.dumps(x_label)}\nset ylabel {json.dumps(y_label)}\nset yrange [0:]",
         plots, [[n, *(values[row] for values in series.values())] for row, n in enumerate(x)])


def stacks(args, name, title, y_label, x, parts):
    """A stack of `parts` for each of x; with one part, plain bars."""
    # After eight parts the colours come again, hatched.
    plots = [f"$data using {i}{':xtic(1)' if i == 2 else ''} {'fs pattern 1 ' if i > 9 else ''}"
             f"title {json.dumps(part)}" for i, part in enumerate(parts, 2)]
    draw(args, name, f"set title {json.dumps(title)}\nset style data histograms\n"
         f"set style histogram rowstacked\nset style fill solid 0.8\nset boxwidth 0.7\n"
         f"set ylabel {json.dumps(y_label)}\nset yrange [0:]\nset xtics rotate by -30",
         plots, [[str(n), *(values[row] for values in parts.values())] for row, n in enumerate(x)])
