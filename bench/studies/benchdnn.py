"""Checks of the shapes in oneDNN benchdnn's lists, which the user has fetched."""

import collections
import random
import re
import shlex

from charts import table
from runs import Log, Refused

FIELDS = "g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh dw".split()
FIELD = re.compile(rf"({'|'.join(FIELDS)})(-?\d+)")
TEXT = re.compile(rf"(?:{FIELD.pattern}|_)+(?=n|$)")  # n begins a name
TOGETHER = 25  # problems of one process
KINDS = ("1-D", "2-D", "3-D")


def directions(fields):
    """As convlab reads a text: a depth alone is a cube's, a width alone is of one row, and otherwise
    an omitted width is the height."""
    given = [d for d in "dhw" if any(of + d in fields for of in "iokspd")]
    if given == ["d"]:
        return ["d"] * 3
    if given == ["w"]:
        return ["w"]
    return [*("d" for _ in range("d" in given)), "h", "w" if "w" in given else "h"]


def outputs(fields, direction):
    def number(of, otherwise=None):
        inherited = fields.get(of + "h") if direction == "w" and "ih" in fields else None
        found = fields.get(of + direction, inherited)
        return otherwise if found is None else found
    if "o" + direction in fields:
        return fields["o" + direction]
    image, stride = number("i"), number("s", 1)
    span = (number("k") - 1) * (number("d", 0) + 1) + 1
    pad = number("p")
    if pad is None:  # of the height, which may follow from its output
        reach = (number("o", 0) - 1) * stride + span
        pad = max(0, (reach - image) // 2) if number("o") else 0
    return (image + 2 * pad - span) // stride + 1


def flops(fields, transposed):
    """Of direct convolution, padded taps included. None where the text lacks a size: convlab says
    which."""
    try:
        work = 2 * fields["mb"] * fields["ic"] * fields["oc"] / fields.get("g", 1)
        for d in directions(fields):
            filter_size = fields.get("k" + d, fields.get("kh"))
            work *= filter_size * (fields.get("i" + d, fields.get("ih")) if transposed
                                   else outputs(fields, d))
        return work
    except (KeyError, TypeError):
        return None


class Lists:
    """What the files hold: `lines`, problems with repetitions; `texts`, with the batch; `above`, how
    many of these take more FLOPs than the limit, and `taken`, the others in a fixed random order, so
    that a study that was stopped is of a fair sample."""

    def __init__(self, folder, batches, limit):
        self.lines, found = 0, {}
        files = sorted(path for path in folder.rglob("*")
                       if path.is_file() and {"conv", "deconv"} & set(path.parts))
        for path in files:
            prefix = "deconv:" if "deconv" in path.parts else ""
            for line in path.read_text(errors="replace").splitlines():
                for word in line.partition("#")[0].split():
                    if not (match := TEXT.match(word)):
                        continue
                    self.lines += 1
                    fields = {name: int(number) for name, number in FIELD.findall(match[0])}
                    for batch in batches:
                        fields["mb"] = batch
                        text = prefix + "".join(f"{name}{fields[name]}" for name in FIELDS
                                                if name in fields and (name, fields[name]) != ("g", 1))
                        found[text] = flops(fields, bool(prefix))
        if not self.lines:
            raise Refused(f"--lists {folder}: no problems in folders named conv or deconv, as in "
                          "tests/benchdnn/inputs of oneDNN")
        self.texts = len(found)
        self.taken = sorted(text for text, work in found.items() if work is None or work <= limit)
        self.above = self.texts - len(self.taken)
        random.Random(1).shuffle(self.taken)


def kind_of(text):
    """By the directions that are more than one row: a list of 3-D shapes has some of depth 1."""
    fields = {name: int(number) for name, number in FIELD.findall(text.removeprefix("deconv:"))}

    def extends(direction):
        return any(fields.get(of + direction, 0) > (of not in "pd") for of in "iokspd")
    return "3-D" if extends("d") else "2-D" if extends("h") else "1-D"


def keep_checks(told):
    """By problem how many candidates passed, failed and were skipped; and the rows of failures."""
    checked = collections.defaultdict(lambda: [0, 0, 0])
    for row in told["rows"]:
        checked[row["layer"]][("PASSED", "FAILED", "SKIPPED").index(row["result"])] += 1
    fields = ("cpu", "isa", "threads", "compiler", "commit", "onednn")
    return {"checked": checked, "date": told["provenance"]["date"],
            "wrong": [{name: row[name] for name in ("layer", "pass", "algo", "config", "layouts",
                                                    "rel_error", "reason", "repeat")}
                      for row in told["rows"] if row["result"] == "FAILED"],
            "machine": {f: told["provenance"][f] for f in fields if f in told["provenance"]}}


def keep_failure(alone):
    """Of a process that checked several problems only that it ended: each is then checked alone."""
    def keep(failed):
        ended = {} if not alone else {"refused" if failed.code == 2 else "crashed": str(failed)}
        return {"checked": {}, "wrong": [], "machine": {}, **ended}
    return keep


def reason_of(message):
    """Without the numbers, by which one reason differs from text to text."""
    message = re.sub(r"^exit 2: (convlab: )?", "", message)
    message = re.sub(r"'[^']*'", "", message).strip(" :")
    return re.sub(r"\d+", "N", message)


def benchdnn(args, log):
    """Which of the lists' problems no algorithm gets wrong."""
    if not args.lists:
        raise Refused("benchdnn: --lists is missing: expected tests/benchdnn/inputs of oneDNN")
    lists = Lists(args.lists, args.batches or [1], args.flops)

    def check(name, problems):
        log.make(name, [args.convlab, "check", *problems, "--format", "json",
                        *shlex.split(args.options)], keep_checks, codes=(0, 1),
                 keep_failure=keep_failure(len(problems) == 1))
    for at in range(0, len(lists.taken), TOGETHER):
        chunk = lists.taken[at:at + TOGETHER]
        name = f"from {at + 1} of {len(lists.taken)}: {chunk[0]}"
        check(name, chunk)
        if name in log.runs and not log.runs[name]["checked"]:
            for text in chunk:
                check(text, [text])
    if not log.runs:
        return

    checked, refused, wrong, crashed = {}, collections.defaultdict(list), [], []
    for name, run in log.runs.items():
        checked.update(run["checked"])
        wrong += run["wrong"]
        if "refused" in run:
            refused[reason_of(run["refused"])].append(name)
        if "crashed" in run:
            crashed.append(f"{name}: {run['crashed']}")
    print(f"\n{lists.lines} problems in the lists, {lists.texts} of them different at batch "
          f"{', '.join(map(str, args.batches or [1]))}; {lists.above} take more than "
          f"{args.flops:.3g} FLOPs, {len(lists.taken)} were taken. So far {len(checked)} were checked "
          f"and {sum(map(len, refused.values()))} refused.\n")
    rows = []
    for transposed in (False, True):
        for kind in KINDS:
            same = [text for text in lists.taken
                    if (kind_of(text), text.startswith("deconv:")) == (kind, transposed)]
            counts = [count for text, count in checked.items()
                      if (kind_of(text), text.startswith("deconv:")) == (kind, transposed)]
            rows.append([f"{kind}{' transposed' if transposed else ''}", len(same), len(counts),
                         *(sum(count[i] for count in counts) for i in range(3))])
    print(table(["", "taken", "checked", "candidates passed", "failed", "skipped"], rows))
    if refused:
        print("Refused, with an example of each:\n")
        print(table(["problems", "reason", "example"],
                    [[len(names), reason, names[0]]
                     for reason, names in sorted(refused.items(), key=lambda r: -len(r[1]))]))
    for what, lines in (("Failures", [f"{row['algo']} {row['config']} {row['layouts']}: "
                                      f"{row['reason'] or row['rel_error']}: `{row['repeat']}`"
                                      for row in wrong]), ("Crashes", crashed)):
        if lines:
            print(f"{what}:\n\n- " + "\n- ".join(lines) + "\n")
            Log.failures.append(f"{len(lines)} {what.lower()}")
