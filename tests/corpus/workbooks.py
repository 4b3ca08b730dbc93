"""Workbooks that are made by the tests: XML parts as spreadsheet programs and others write them."""

import io
import zipfile
from xml.sax.saxutils import escape

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
FORMATS = ("", "yyyy-mm-dd", "dd/mm/yyyy hh:mm", "hh:mm:ss", '0.00 "days"', "[h]:mm", "#,##0.00 [$€-407]")
"""The formats of the styles 0, 1, 2, ... of these workbooks."""


def text(content):
    """A cell with a text of its own."""
    return f't="inlineStr"><is><t xml:space="preserve">{escape(content)}</t></is>'


def number(digits, style=None):
    """A cell with a number as it is written."""
    return f"{'' if style is None else f's={chr(34)}{style}{chr(34)}'}><v>{digits}</v>"


def formula(expression, value=None, kind=""):
    """A cell with a formula, and its stored result if there is one."""
    stored = "" if value is None else f"<v>{value}</v>"
    return f"{kind}><f>{escape(expression)}</f>{stored}"


def letters(place):
    """The letters of the column at a place, counted from 0; at most 26 columns are needed."""
    return chr(65 + place)


def sheet(rows, after="", before=""):
    """The XML of a sheet; a cell is markup, a number, a text, or None if it is not stored."""
    lines = []
    for row, cells in enumerate(rows, start=1):
        stored = [
            f'<c r="{letters(place)}{row}" {markup(cell)}</c>'
            for place, cell in enumerate(cells)
            if cell is not None
        ]
        if stored:
            lines.append(f'<row r="{row}" spans="1:{len(cells)}">{"".join(stored)}</row>')
    data = f"<sheetData>{''.join(lines)}</sheetData>"
    return f'<?xml version="1.0"?><worksheet xmlns="{MAIN}">{before}{data}{after}</worksheet>'


def markup(cell):
    """The markup of a plain value; markup is returned as it is."""
    if isinstance(cell, str) and ">" in cell:
        return cell
    if isinstance(cell, bool):
        return f't="b"><v>{int(cell)}</v>'
    return text(cell) if isinstance(cell, str) else number(repr(cell))


def pack(sheets, *, charts=(), hidden=(), strings=(), book="", others=None):
    """The bytes of a workbook.

    sheets : XML by title; None if the part is lacking.
    charts, hidden : titles of sheets that are charts or hidden.
    strings : shared texts.
    book : settings of the workbook.
    others : further parts, or other content of parts.
    """
    listed, related, typed = "", "", ""
    parts = {}
    for place, (title, xml) in enumerate(sheets.items(), start=1):
        kind = "chartsheet" if title in charts else "worksheet"
        state = ' state="hidden"' if title in hidden else ""
        listed += f'<sheet name="{escape(title)}" sheetId="{place}"{state} r:id="rId{place}"/>'
        related += f'<Relationship Id="rId{place}" Type="{TYPES}/{kind}" Target="{kind}s/{place}.xml"/>'
        typed += f'<Override PartName="/xl/{kind}s/{place}.xml" ContentType="{CONTENT}.{kind}+xml"/>'
        if kind == "chartsheet":
            parts[f"xl/chartsheets/_rels/{place}.xml.rels"] = f'<Relationships xmlns="{RELATIONS}"/>'
        if xml is not None:
            parts[f"xl/{kind}s/{place}.xml"] = xml
    for name in ("styles", "sharedStrings"):
        related += f'<Relationship Id="{name}" Type="{TYPES}/{name}" Target="/xl/{name}.xml"/>'
        typed += f'<Override PartName="/xl/{name}.xml" ContentType="{CONTENT}.{name}+xml"/>'
    codes = "".join(
        f'<numFmt numFmtId="{200 + place}" formatCode="{escape(code, {chr(34): "&quot;"})}"/>'
        for place, code in enumerate(FORMATS)
    )
    styles = "".join(
        f'<xf numFmtId="{200 + place if code else 0}" fontId="0"/>' for place, code in enumerate(FORMATS)
    )
    shared = "".join(f"<si><t>{escape(one)}</t></si>" for one in strings)
    parts |= {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{CONTENT}.sheet.main+xml"/>{typed}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r" '
        f'Type="{TYPES}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{TYPES}">{book}<sheets>{listed}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{RELATIONS}">{related}</Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><numFmts>{codes}</numFmts><fonts><font/></fonts>'
        "<fills><fill><patternFill/></fill></fills><borders><border/></borders>"
        f'<cellStyleXfs><xf/></cellStyleXfs><cellXfs>{styles}</cellXfs><cellStyles><cellStyle name="Normal" '
        'xfId="0" builtinId="0"/></cellStyles></styleSheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{shared}</sst>',
    }
    parts |= others or {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def unpack(path):
    """The parts of a workbook by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
