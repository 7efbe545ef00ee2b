"""What the output of a job of tests/gpu/run says: each returns the result and what was found, by the
exit code and the log, beside which the job has left its table under the same name."""

import re
import signal

from report import profile_metrics, read_check, read_json, read_text


MOST_CHARACTERS = 200


def shortened(text):
    """Whole words, at most so many characters of them."""
    if len(text) <= MOST_CHARACTERS:
        return text
    start = text[:MOST_CHARACTERS - 3]
    return (start if text[len(start)] == " " else start.rpartition(" ")[0] or start) + "..."


def last_line(log):
    lines = read_text(log).strip().splitlines()
    return shortened(lines[-1].strip()) if lines else "no output"


def ended_by(code):
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def by_exit(code, log):
    if code != 0 and "there is no tuning store" in last_line(log):
        return "unfinished", "nothing is tuned yet: run race or tune"
    return ("passed", "") if code == 0 else ("failed", f"{ended_by(code)}: {last_line(log)}")


def suite(code, log):
    text = read_text(log)
    found = ", ".join(f"{n} {what.lower()}" for what, n in
                      re.findall(r"^\[  (PASSED|SKIPPED|FAILED) +\] (\d+) test", text, re.M))
    if code != 0 and not re.search(r"^\[  PASSED  \]", text, re.M):  # it did not reach its end
        begun = re.findall(r"^\[ RUN +\] (\S+)", text, re.M) or ["no test"]
        return "failed", f"{ended_by(code)} in {begun[-1]}"
    if code == 0 and re.search(r"^\[  PASSED  \] 0 tests", text, re.M):
        return "skipped", "; ".join(dict.fromkeys(re.findall(r": Skipped\n(.*)", text)))
    return ("passed" if code == 0 else "failed"), found


def check(code, log):
    rows, notes = read_check(log.with_suffix(".csv"))
    if code == 2 and "no algorithm takes " in last_line(log):  # takes the type in other passes only
        return "skipped", last_line(log)
    if not notes or code not in (0, 1):  # such an end has no table, or not all of it
        after = f" after {len(rows)} candidates" if rows else ""
        return "failed", f"{ended_by(code)}{after}: {last_line(log)}"
    if code == 0 and notes[0].startswith("0 passed"):
        return "skipped", next((row["reason"] for row in rows), notes[0])
    lost = any("card was lost" in note for note in notes)
    return ("passed" if code == 0 else "failed"), notes[0] + (", the card lost" if lost else "")


def memcheck(code, log):
    text = read_text(log.with_suffix(".log"))
    first = re.search(r"^=+ (Invalid .*|Uninit.*|Program hit .*)", text, re.M)
    total = re.search(r"ERROR SUMMARY: .*", text)
    if code == 0 and total:
        return "passed", total[0]
    said = [match[0].strip("= ") for match in (first, total) if match] or [last_line(log)]
    return "failed", "; ".join([ended_by(code), *said])


def tune(code, log):
    told = read_json(log.with_suffix(".json"))
    if code not in (0, 1) or not told:  # 1: no row has an algorithm, perhaps for lack of time
        return by_exit(code or 1, log)
    contest = told["totals"]["contest"]
    found = f"{len(told['layers'])} rows"
    if contest["rows"]:
        found += (f"; own {contest['own_ms']:.3f} ms, cuDNN {contest['peer_ms']:.3f} ms over "
                  f"{contest['rows']} of {contest['of']}")
    if not told["totals"]["complete"]:
        gain = told["totals"]["remaining_gain_ms"]
        return "unfinished", f"{found}; {gain:.3f} ms may be gained by what is not decided yet"
    return ("passed" if code == 0 else "failed"), found


def roofline(code, log):
    """Of what the race has measured so far: one that knows too little runs again."""
    if code == 2 and "knows nothing of" in last_line(log):
        return "unfinished", "the race has measured nothing yet"
    told = read_json(log.with_suffix(".json"))
    if code != 0 or not told:
        return by_exit(code or 1, log)
    missing = [note for note in told["notes"] if "are not in the store" in note]
    found = [note for note in told["notes"] if note.startswith("The chosen algorithms take")]
    return ("unfinished" if missing else "passed"), " ".join(found)


def time(code, log):
    told = read_json(log.with_suffix(".json"))
    if code != 0 or not told:
        return by_exit(code or 1, log)
    took = told["iteration"]
    return "passed", f"{took['ms']:.3f} ms, {took['images_per_s']:.1f} images/s"


def profile(code, log):
    """--kill ends the program on purpose, so that its exit code says nothing."""
    path = log.with_suffix(".csv")
    if any("ERR_NVGPUCTRPERM" in read_text(each) for each in (log, path)):
        return "skipped", "this user may not read the card's counters (ERR_NVGPUCTRPERM)"
    found = profile_metrics(path)
    return ("passed", found) if found else ("failed", f"{ended_by(code)}: {last_line(log)}")
