"""How Sphinx builds the site: `make docs` writes it to build/site."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import click
import numpydoc.xref
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import lpe_dask
from lpe_dask.cli.option_groups import option_groups

project = "lpe_dask"
author = "the lpe_dask developers"
version = release = lpe_dask.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "sphinx_click",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_templates", "gallery_examples", "paper"]
nitpicky = True
toc_object_entries_show_parents = "hide"

# Markdown, with anchors of headings as on other pages that show it.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Parameters and types stand in the docstrings; signatures repeat none.
autodoc_typehints = "none"
autosummary_generate = True
add_module_names = False
numpydoc_show_class_members = False
default_role = "py:obj"
smartquotes = False  # values are copied

# Words that are links where docstrings say what a parameter is; all others are left alone.
numpydoc.xref.DEFAULT_LINKS.clear()
_RESULTS = {
    "CalibrationCheck": "lpe_dask.model.calibration_check",
    "Certificate": "lpe_dask.model.certificate",
    "Drift": "lpe_dask.monitoring",
    "Forecast": "lpe_dask.forecast.forecast",
    "GroupDrift": "lpe_dask.monitoring.result",
    "GroupsDrift": "lpe_dask.monitoring.result",
    "NewValues": "lpe_dask.monitoring.result",
    "RunError": "lpe_dask.batch.errors",
    "SortedVector": "lpe_dask.storage",
}
_DASK_TYPES = {
    "dask DataFrame": "dask.dataframe.DataFrame",
    "dask Series": "dask.dataframe.Series",
    "dask array": "dask.array.Array",
}
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    "Axes": "matplotlib.axes.Axes",
    "DataFrame": "pandas.DataFrame",
    "LPE": "lpe_dask.LPE",
    "Series": "pandas.Series",
    "ndarray": "numpy.ndarray",
    **{name: f"{module}.{name}" for name, module in _RESULTS.items()},
}

# Lists of the few names that pages refer to, so that no build needs the network.
_INVENTORIES = Path(__file__).parent / "inventories"
_PROJECTS = {
    "dask": "https://docs.dask.org/en/stable/",
    "matplotlib": "https://matplotlib.org/stable/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "sklearn": "https://scikit-learn.org/stable/",
}
intersphinx_mapping = {
    name: (url, str(_INVENTORIES / f"{name}.inv")) for name, url in _PROJECTS.items()
}

# Examples run in a folder of their own, with one number of threads.
sphinx_gallery_conf = {
    "examples_dirs": "gallery_examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("lpe_dask",),
    "reference_url": {"lpe_dask": None},
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
}
os.environ.setdefault("OMP_NUM_THREADS", "1")

html_theme = "pydata_sphinx_theme"
html_title = "lpe_dask"
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "guarantees": []},  # wide tables
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_copy_source = html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"*": []}  # pages that are in no folder
html_math_renderer = "mathml"


def setup(app: Sphinx) -> None:
    """Connect what is done here to the steps of a build."""
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_formula, None))
    app.connect("autodoc-process-docstring", _with_links, priority=400)  # before numpydoc
    app.connect("autodoc-process-signature", _without_constructor)
    app.connect("sphinx-click-process-description", _with_code)
    app.connect("sphinx-click-process-options", _with_code)
    app.connect("sphinx-click-process-options", _with_headings)
    app.connect("build-finished", _publish_schemas)


# Formulas are MathML, which browsers show without a script from elsewhere.


def _inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f"<p>{tex2mathml(node.astext(), as_block=True)}</p>")
    raise nodes.SkipNode


def _with_links(
    app: Sphinx, what: str, name: str, of: Any, options: Any, lines: list[str]
) -> None:
    """Link the pages that a docstring names by their paths, and the types of Dask."""
    path = re.compile(r"(`*)docs/([\w/]+)\.md\1")
    for i, line in enumerate(lines):
        line = path.sub(r":doc:`/\2`", line)
        if re.match(r"\s*[\w*, ]+ : ", line):
            for words, target in _DASK_TYPES.items():
                line = line.replace(words, f":obj:`{words} <{target}>`")
        lines[i] = line


def _without_constructor(
    app: Sphinx, what: str, name: str, of: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Leave out how a result is made, which no user does."""
    is_result = name.rpartition(".")[2] in _RESULTS
    return ("", "") if signature and is_result else None


def _with_code(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Show names and addresses in the help of a command as code."""
    code = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*[a-z]|\w+://[\w.:]*)")
    for i, line in enumerate(lines):
        if not line.startswith(".. option::"):
            line = code.sub(lambda of: f"``{of[1] or of[2]}``", line)
            lines[i] = line.replace(":options:", ":choices:")


def _with_headings(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Group the options of a command, and show their defaults, as its help does."""
    blocks = re.split(r"^(?=\.\. option:: )", "\n".join(lines), flags=re.MULTILINE)[1:]
    options = [of for of in context.command.params if isinstance(of, click.Option)]
    block_of = {of.name: block for of, block in zip(options, blocks, strict=True)}
    shown = click.Context(context.command, show_default=True)
    lines.clear()
    for heading, group in option_groups(context):
        lines += [f".. rubric:: {heading}", ""] if lines else []
        for of in group:
            lines += block_of.get(of.name, "").rstrip().split("\n")
            if default := of.get_help_extra(shown).get("default"):
                lines += [] if ":choices:" in lines[-1] else [""]
                lines += [f"    :default: {default}"]
            lines += [""]


def _publish_schemas(app: Sphinx, error: Exception | None) -> None:
    """Put the schemas where editors and programs can refer to them by URL."""
    shutil.copytree(app.srcdir / "schemas", app.outdir / "schemas", dirs_exist_ok=True)
