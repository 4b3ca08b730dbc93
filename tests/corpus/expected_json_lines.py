"""Files of JSON lines, and what becomes of every column of each when it is imputed.

A new file is a `.jsonl` in the folder `json_lines` beside this one and an entry in `JSON_LINES`;
`tests/cli/test_json_lines.py` does the rest.
"""

from corpus.expected import COMPLETE, QUICK, File, filled, left

NUMBER = r"-?\d+(\.\d+)?([eE][+-]?\d+)?"

JSON_LINES: dict[str, File] = {
    "orders": File(
        {
            "id": left(0, "identifier"),
            "zip": COMPLETE,
            "total": filled(3, r'"\d\d\.\d\d"'),
            "weight": filled(2, r"2\d\.\d+"),
            "paid": filled(2, '"(true|false)"'),
            "gift": filled(3, "true|false"),
            "address": left(14, "not imputed"),
        },
        says=(r"warning column 'address' contains lists or objects, the first in line 1: kept as they are",),
        options=QUICK,
    ),
    "answers": File(
        {
            "person": left(0, "identifier"),
            "age": filled(3, r"\d\d"),
            "income": filled(2, r"\d{4}"),
            "comment": filled(1, '"(fine|good)"'),
            "mood": filled(3, '"(good|bad)"'),
            "day": filled(2, r'"2024-\d\d-\d\d"'),
            "wave": filled(22, "[12]"),
        },
        says=(
            r"note column 'age': 2 cells contain 'NA': kept as written and not used by the model",
            r"note column 'income': 4 cells contain 'refused': kept as written and not used",
            r"note column 'comment': 44 cells contain '': kept as written and not used by the model",
        ),
        options=QUICK,
    ),
    "sensors": File(
        {
            "site": COMPLETE,
            "t": filled(2, NUMBER),
            "lead": filled(2, r'0\.\d+|"<0\.05"'),
            "price": filled(3, r'"\$1,\d{3}\.\d\d"'),
            "mixed": filled(2, '1|"1"|true|"low"'),
        },
        says=(
            r"note column 'lead': 9 cells contain '<0.05'",
            r"note column 'price' contains amounts in \$ with commas between thousands",
        ),
        options=QUICK,
    ),
}
