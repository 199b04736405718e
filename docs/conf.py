"""How Sphinx builds the site: `make docs` writes it to build/site."""

import os
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import lpe_dask

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
exclude_patterns = ["gallery_examples", "paper"]
nitpicky = True

# Markdown, with anchors of headings as on other pages that show it.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Parameters and types stand in the docstrings; signatures repeat none.
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
default_role = "py:obj"

# Lists of the few names that pages refer to, so that no build needs the network.
_INVENTORIES = Path(__file__).parent / "inventories"
_PROJECTS = {
    "dask": "https://docs.dask.org/en/stable/",
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
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "guarantees": []},  # wide tables
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_copy_source = html_show_sourcelink = False
html_extra_path = ["schemas"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"*": []}  # pages that are in no folder
html_math_renderer = "mathml"


def setup(app: Sphinx) -> None:
    """Write formulas as MathML, which browsers show without a script from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_formula, None))


def _inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    raise nodes.SkipNode
