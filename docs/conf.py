"""The documentation site: `make docs` builds it into build/site, with warnings as errors and without a network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import discreet  # noqa: E402

project = "discreet"
author = "The discreet developers"
project_copyright = f"{author}, Apache-2.0"
version = release = discreet.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "api",
    "results",
]
exclude_patterns = ["_ext", "_static"]
smartquotes = False  # the prime of u' is not a quotation mark
default_role = "code"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_allow_labels = False

autosummary_generate = False  # api.py writes the pages
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_docstring_signature = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = False
# Types are words for people, such as "array of shape (n_features,)": nothing to link.
napoleon_custom_sections = ["Privacy", ("Attributes", "params_style")]
napoleon_use_param = False
napoleon_use_rtype = False

highlight_language = "text"  # blocks of code name their language
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "discreet"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    # Pages of wide tables take the whole width; the front page has cards instead.
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        **{
            name: []
            for name in (
                "attacks",
                "benchmarks",
                "errata",
                "from-other-libraries",
                "from-scikit-learn",
                "index",
                "papers",
                *(f"results/{path.stem}" for path in (HERE.parent / "benchmarks" / "results").glob("*.md")),
                "solvers",
            )
        },
    },
    "show_prev_next": True,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
