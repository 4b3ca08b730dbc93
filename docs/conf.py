"""The documentation's configuration; `make docs` builds with warnings as errors."""

import inspect
import re
import warnings
from importlib.metadata import version as installed

from docutils import nodes
from latex2mathml.converter import convert

project = "halfseen"
author = "halfseen developers"
copyright = "halfseen developers"
release = version = installed("halfseen")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "skeletons",
    "gallery/*.py",
    "gallery/*.ipynb",
    "sg_execution_times.rst",
    "README.md",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
templates_path = ["templates"]
suppress_warnings = ["ref.python"]  # a word in a type, such as n_features, may be an attribute of two classes
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2

html_math_renderer = (
    "mathml"  # which browsers draw by themselves: no script from elsewhere, so that it works offline
)
toc_object_entries_show_parents = "hide"  # or the names of methods would be cut in the column on the right
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, with shapes
autodoc_default_options = {"members": True, "inherited-members": "object"}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # an attribute that is also a property would be described twice
napoleon_custom_sections = [("Shapes", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = f"halfseen {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 4,  # more would need two lines on a screen of 1280 pixels
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
}
ALONE = "accuracy cheatsheet faq getting_started glossary guide/choosing limits peers support"
html_sidebars = {page: [] for page in ALONE.split()}  # no other pages below them: nothing to list

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"service\.py",  # a program of the guide, not a page of the gallery
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "remove_config_comments": True,
}

# The gallery runs with a drawing back end that has no window to show.
warnings.filterwarnings("ignore", message=".*non-interactive.*")


def skip_what_is_not_ours(app, what, name, obj, skip, options):
    """Leaves out methods that scikit-learn or Python document: their pages are elsewhere."""
    home = getattr(obj, "__module__", None) or ""
    foreign = inspect.isroutine(obj) and not home.startswith("halfseen")
    return True if foreign or name.endswith("_request") else None


def escape_stars(app, what, name, obj, options, lines):
    """Keeps a shape such as (*, D) from being read as the beginning of emphasis."""
    lines[:] = [re.sub(r"(?<!`)\(\*(?=[,)])", r"(\\*", line) for line in lines]


def write_math(display):
    """Returns the function that writes a formula as MathML."""

    def visit(translator, node):
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit


def setup(app):
    inline, block = ((write_math(display), None) for display in ("inline", "block"))
    app.add_html_math_renderer("mathml", inline_renderers=inline, block_renderers=block)
    app.connect("autodoc-process-docstring", escape_stars)
    app.connect("autodoc-skip-member", skip_what_is_not_ours)
