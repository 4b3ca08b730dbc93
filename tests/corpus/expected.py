"""Small dirty files, made for the tests, and what becomes of every column of each when it is imputed.

A new file is a csv beside this one and an entry in `CORPUS`; `tests/cli/test_corpus.py` does the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What becomes of a column.

    missing : cells that count as missing when the file is read.
    left : cells that are missing in the output; None if `where` alone says it.
    why : a pattern that the reason in `columns_left_` matches; without one the column is not among them.
    where : the cells left are exactly the missing ones of rows whose output has one of these texts, by
        column.
    written : a pattern that the text of every filled cell matches as a whole.
    """

    missing: int = 0
    left: int | None = 0
    why: str = ""
    where: Mapping[str, tuple[str, ...]] | None = None
    written: str = ""


@dataclass(frozen=True)
class File:
    """A file of the corpus: the outcome of each column, patterns of lines on standard error, options."""

    columns: Mapping[str, Outcome]
    says: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    n_notes: int | None = None  # lines that begin with "note"; None where the number does not matter


def filled(missing: int, written: str = "") -> Outcome:
    """Every missing cell is filled."""
    return Outcome(missing, written=written)


def left(missing: int, why: str) -> Outcome:
    """Every missing cell is left empty."""
    return Outcome(missing, missing, why)


COMPLETE = Outcome()
QUICK = ("--method", "gaussian")  # where the method does not matter

CORPUS: dict[str, File] = {
    "checkboxes": File(
        {
            "age": filled(2, r"\d+"),
            "weight": filled(3, r"\d+\.\d"),
            "deceased": left(53, "one observed value, 'yes'"),
            "newsletter": left(45, "one observed value, True"),
            "country": left(3, "one observed value, 'CH'"),
            "batch": filled(2, "7"),
            "fax": left(60, "no observed value"),
            "exported": left(30, "one observed value, 2024-05-01"),
            "smoker": filled(4, "no|yes"),
        },
        says=(
            r"warning  Column 'deceased' has one observed value, 'yes'; its 53 missing cells are left empty",
            r"note  Column 'batch' has one observed value, 7; its 2 missing cells are imputed with it",
            r"warning  Column 'fax' has no observed value; its 60 missing cells are left empty",
            r"wrote  .*; 191 cells left missing",
        ),
        n_notes=6,
    ),
    "customers": File(
        {
            "customer": left(10, "identifier"),
            "phone": left(3, "identifier"),
            "comment": left(25, "free text"),
            "rating": filled(3, r"I (would|am) .*"),
            "city": filled(3, "Bern|Genève|Zürich|Basel"),
            "amount": filled(2, r"\d+\.\d\d"),
            "items": filled(1, r"\d+"),
        },
        says=(r"warning  Column 'customer' looks like an identifier; its 10 missing cells are left empty",),
        n_notes=3,
    ),
    "clinic": File(
        {
            "visit": Outcome(why="identifier"),
            "age": filled(3, r"\d+"),
            "sex": COMPLETE,
            "pregnant": Outcome(74, 70, where={"sex": ("m",)}, written="no|yes"),
            "weeks": Outcome(107, None, where={"sex": ("m",), "pregnant": ("no",)}, written=r"\d+"),
            "hb": filled(4, r"\d+\.\d"),
        },
        says=(
            r"note  Column 'pregnant' is missing wherever 'sex' is 'm' \(70 rows\) .* left empty there",
            r"note  Column 'weeks' is missing wherever 'pregnant' is 'no' \(33 rows\) .* left empty there",
        ),
        options=QUICK,
        n_notes=2,
    ),
    "houses": File(
        {
            "garage_area": COMPLETE,
            "garage_type": Outcome(48, 45, where={"garage_area": ("0",)}, written="(at|de)tached|basement"),
            "garage_year": Outcome(47, 45, where={"garage_area": ("0",)}, written=r"\d{4}"),
            "price": filled(2, r"\d+"),
            "heating": filled(3, "gas|oil|electric"),
        },
        says=(r"note  Column 'garage_type' is missing wherever 'garage_area' is 0 \(45 rows\)",),
        options=QUICK,
        n_notes=2,
    ),
    "empties": File(
        {
            **{f"q{i}": left(12, "no observed value") for i in range(40)},
            "a": filled(1, r"-?\d+\.\d\d"),
            "b": COMPLETE,
        },
        says=(r"warning  40 columns have no observed value; their missing cells are left .*: q0, q1, q2",),
        n_notes=1,
    ),
    "ordinary": File(
        {
            "x": COMPLETE,
            "group": filled(28, "low|mid|high"),
            "flag": filled(82, "true|false"),
            "visits": filled(27, r"\d+"),
            "income": filled(84, r"\d+"),
            "town": filled(32, "town [A-J]"),
            "since": filled(28, r"\d{4}-\d\d-\d\d"),
        },
        options=QUICK,
        n_notes=0,
    ),
    "quantities": File(
        {
            "age": filled(4, r"\d+"),
            "duration": left(4, r"contains times or durations such as '\d:\d\d', which are"),
            "stay": left(4, r"contains times or durations such as '\dh \d+m'"),
            "minutes": filled(4, r"\d+ min"),
            "quarter": left(4, r"contains quarters such as '\d{4}-Q\d'"),
            "season": filled(4, r"Q\d \d{4}"),
            "pressure": left(4, r"contains pairs of numbers such as '\d+/\d+'"),
            "weight": left(4, r"contains numbers with different units such as '\d+ k?g'"),
            "wait": left(4, r"contains times or durations such as '\d+ (min|h)'"),
        },
        says=(
            r"warning  Column 'duration' .*; its 4 missing cells are left empty \(to impute them, convert "
            r"the "
            r'values to numbers, such as minutes, or use "kind": "categorical" in the schema\)',
            r"warning  Column 'quarter' .*write the values as dates, such as 2021-07-01",
            r"warning  Column 'pressure' .*split the column into two",
            r"warning  Column 'weight' contains numbers with different units .*convert the values to one",
            r"warning  column 'wait' contains times or durations such as '\d+ min' and '\d+ h': left as text",
        ),
        options=QUICK,
        n_notes=7,
    ),
    "indicators": File(
        {
            "age": filled(6, r"\d+"),
            "sex": COMPLETE,
            "TSH measured": COMPLETE,
            "TSH": filled(54, r"\d+\.\d\d"),
            "T3 measured": COMPLETE,
            "T3": filled(80, r"\d\.\d"),
            "TT4 measured": COMPLETE,
            "TT4": filled(56, r"\d+"),
        },
        says=(
            r"note  Column 'TSH measured' marks where 'TSH' is missing.*: .* imputed",
            r"note  Column 'T3 measured' marks where 'T3' is missing",
            r"note  Column 'TT4 measured' marks where 'TT4' is missing",
        ),
        options=QUICK,
        n_notes=3,
    ),
    "blood_tests": File(
        {
            "age": COMPLETE,
            "bmi": filled(7, r"\d+\.\d"),
            "blood_drawn": COMPLETE,
            "hb": filled(49, r"\d+\.\d"),
            "crp": filled(49, r"\d+\.\d"),
            "ldl": filled(49, r"\d+"),
        },
        says=(r"note  Column 'blood_drawn' marks where 'hb', 'crp' and 'ldl' are missing.*: .* imputed",),
        options=QUICK,
        n_notes=1,
    ),
    "survey_cycles": File(
        {
            "SurveyYr": COMPLETE,
            "Age": COMPLETE,
            "BMI": filled(14, r"\d+\.\d"),
            "TVHrsDay": Outcome(119, 110, where={"SurveyYr": ("2009_10",)}, written=r"\d"),
            "CompHrsDay": Outcome(110, 110, where={"SurveyYr": ("2009_10",)}),
        },
        says=(
            r"verdict .*: TVHrsDay \(error [^,]*\)$",  # CompHrsDay is not filled anywhere
            r"note  Column 'TVHrsDay' is missing wherever 'SurveyYr' is '2009_10' \(110 rows\) .* Was it not "
            r"asked or measured there\? .* left empty; if the values exist, --no-skip-rules",
            r"note  Column 'CompHrsDay' is missing wherever 'SurveyYr' is '2009_10' \(110 rows\)",
        ),
        options=QUICK,
        n_notes=2,
    ),
    "waves": File(
        {
            "person": Outcome(why="repeated identifier"),
            "wave": COMPLETE,
            "sex": COMPLETE,
            "weight": filled(40, r"\d+\.\d"),
            "mood": filled(28, r"\d+"),
        },
        says=(
            r"warning  Rows may not be independent: there are 60 values of 'person' in 240 rows.* left out",
        ),
        options=QUICK,
        n_notes=1,
    ),
    "schools": File(
        {
            "school": COMPLETE,
            "age": COMPLETE,
            "maths": filled(27, r"\d+"),
            "reading": filled(26, r"\d+"),
        },
        says=(
            r"warning  Rows may not be independent: there are 12 values of 'school' in 240 rows.* a category",
        ),
        options=QUICK,
        n_notes=1,
    ),
    "consents": File(
        {
            "age": COMPLETE,
            "income": filled(40, r"\d+"),
            "zip": filled(53, r"\d+"),
            "consent": left(134, r"no better than .*\d% correct, compared with \d+% for"),
            "premium": filled(81, "ja|nein"),
        },
        says=(
            r"verdict  filled well: .*income",
            r"verdict  hardly better than the mean or the most frequent level: .*zip \(\d% correct",
            r"verdict  hardly better than the mean or the most frequent level: .*consent",
            r"warning  Column 'consent' .*; its 134 missing cells are left empty",
        ),
        options=QUICK,
        n_notes=1,
    ),
    "short": File(
        {"city": filled(1, "Bern|Basel|Thun"), "size": filled(1, r"\d\.\d"), "open": filled(1, "true|false")},
        n_notes=0,
    ),
    "visits": File(
        {
            "visits": filled(3, r"\d{1,2},\d{3}"),
            "paid": filled(2, r"\$\d{1,2},\d{3}"),
            "opened": filled(2, r"\d\d\.\d\d\.2021"),
            "contact": filled(2, "mail|phone|visit|k.A.|k.a."),
            "score": filled(4, r"\d\d\.\d"),
        },
        says=(
            r"warning column 'visits': 56 cells like '4,416' are read as 4416.*1 cell without a.*'15770'",
            r"warning column 'paid': 56 cells like '\$4,117' are read as 4117.*2 cells .*'\$15770'",
            r"note column 'opened': 49 cells are written like '25.06.2021' .* 9 cells like '2021-07-13'",
            r"note column 'contact': 8 cells contain 'k.A.' \(7\) or 'k.a.' \(1\).*--null contact=k.A.",
            r"note column 'score': 3 cells contain 'n.a.' \(1\), 'N.A.' \(1\) or 'N.a.' \(1\), read",
        ),
        options=QUICK,
    ),
}  # fmt: skip

PENDING: frozenset[str] = frozenset()
"""Files whose outcome is written down and not yet reached."""
