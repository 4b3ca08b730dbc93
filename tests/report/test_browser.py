"""The pages of all commands in a browser: nothing is wider than a phone, and every word can be read."""

from importlib.resources import files

import pytest
from report.browser import measure, needs_browser

from halfseen.cli.main import main

PENGUINS = files("halfseen.data") / "samples" / "penguins.csv"
READABLE = 4.5  # the contrast that WCAG 2 asks of text, level AA


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of every kind on penguins with long names, some of which are not ASCII."""
    folder = tmp_path_factory.mktemp("pages")
    long = PENGUINS.read_text(encoding="utf-8").replace(
        "bill_length_mm", "a_column_with_a_name_that_is_" + 9 * "sehr_größer_" + "long", 1
    )
    source = folder / "penguins_of_the_palmer_archipelago_with_a_long_name.csv"
    source.write_text(long, encoding="utf-8")
    commands = {
        "impute": ("-o", str(folder / "o.csv"), "--evaluate"),
        "describe": ("--against", str(source), "--target", "species"),
        "compare": ("--methods", "gaussian,mean,median,iterative", "--repeats", "2", "--draws", "5"),
    }
    for name, options in commands.items():
        report = str(folder / f"{name}.html")
        assert main([name, str(source), *options, "--report", report, "--quiet"]) == 0
    model, page = str(folder / "m.halfseen"), str(folder / "predict.html")
    fit = ("fit", str(source), "--target", "species", "--method", "boosting", "--save-model", model)
    fit += ("--report", str(folder / "fit.html"))
    predict = ("predict", model, str(source), "-o", str(folder / "p.csv"), "--report", page)
    target = str(folder / "target.html")
    methods = ("--methods", "baseline,constant+linear,gaussian+linear", "--budget", "60", "--repeats", "1")
    compare = ("compare", str(source), "--target", "species", *methods, "--report", target)
    assert [main([*command, "--quiet"]) for command in (fit, predict, compare)] == [0, 0, 0]
    names = (*commands, "fit", "predict", "target")
    return {f"{name}.html": (folder / f"{name}.html").read_text(encoding="utf-8") for name in names}


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(360, False), (390, True), (1280, False), (1920, True)])
def test_pages_fit_the_screen_and_can_be_read(pages, tmp_path, width, dark):
    found = measure(tmp_path, pages, width=width, dark=dark)
    assert set(found) == set(pages)
    for name, one in found.items():
        assert one["width"] == width
        assert one["dark"] == dark
        assert one["outside"] == [], name
        assert one["scroll"] <= width, name
        assert one["cut"] == [], name
        assert one["contrast"] >= READABLE, (name, one["faintest"])
        # Wide tables scroll on a phone, in a container that the keyboard reaches; a desktop is wide enough.
        assert (one["scrolling"] > 0) == (width < 1000), name
        assert one["unreachable"] == 0, name


@needs_browser
@pytest.mark.slow
def test_what_is_too_wide_or_too_faint_is_found(tmp_path):
    page = '<!DOCTYPE html><meta name="viewport" content="width=device-width"><body>{}</body>'
    wide = page.format('<p style="width:600px">wide</p>')
    text = '<text x="-30" y="15">beyond the panel</text>'
    cut = page.format(f'<div class="panel"><svg width="90" style="overflow:visible">{text}</svg></div>')
    faint = page.format('<p style="color:#ddd">faint</p><div class="wide" style="overflow-x:auto"><pre>'
                        f"{'x' * 500}</pre></div>")  # fmt: skip
    found = measure(tmp_path, {"wide.html": wide, "faint.html": faint, "cut.html": cut})
    assert found["wide.html"]["outside"]
    assert found["wide.html"]["scroll"] > 360
    assert found["faint.html"]["contrast"] < READABLE
    assert (found["faint.html"]["scrolling"], found["faint.html"]["unreachable"]) == (1, 1)
    assert found["faint.html"]["outside"] == []
    assert found["cut.html"]["cut"] == ["beyond the panel"]
