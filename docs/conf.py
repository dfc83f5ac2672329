import shutil
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from arviz_swiss.data import schema

HERE = Path(__file__).parent

# Sphinx reads only what lies below this folder.
shutil.rmtree(HERE / "notebooks", ignore_errors=True)
(HERE / "notebooks").mkdir()
for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    shutil.copy(notebook, HERE / "notebooks")


def table(meanings, heading):
    """Return a dict of name to meaning as a Markdown table."""
    rows = [
        f"| `{name}` | {text[:1].upper()}{text[1:].rstrip('.')} |"
        for name, text in meanings.items()
    ]
    return "\n".join([f"| {heading} | holds |", "|---|---|", *rows, ""])


def schema_page():
    """Return what the schema says of a merged object: its groups, and what is in ours."""
    parts = ["## Groups\n", table(schema.GROUPS, "group")]
    for group in dict.fromkeys([*schema.VARIABLES, *schema.ATTRIBUTES]):
        parts.append(f"## `{group}`\n")
        if group in schema.VARIABLES:
            parts.append(table(schema.VARIABLES[group], "variable"))
        if group in schema.ATTRIBUTES:
            parts.append(table(schema.ATTRIBUTES[group], "attribute"))
    parts += ["## `posterior` of a batch\n", table(schema.BATCH_ATTRIBUTES, "attribute")]
    parts += ["## Files of `moments` and `plan`\n", table(schema.FILE_GROUPS, "group")]
    parts.append(table(schema.FILE_ATTRIBUTES, "attribute"))
    return "\n".join(parts)


(HERE / "api").mkdir(exist_ok=True)
(HERE / "api" / "schema.md").write_text(schema_page())

project = "arviz_swiss"
author = "The arviz_swiss contributors"
copyright = author
release = version = installed_version("arviz-swiss")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
]
exclude_patterns = ["_build", "api/schema.md"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's Parameters section already says the types
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are committed with their output

html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_theme = "sphinx_book_theme"
html_title = "arviz_swiss"
html_show_sourcelink = False


# Browsers render MathML themselves: no script from elsewhere, and formulas also without a network.
def visit_inline_math(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block_math(translator, node):
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline_math, None), (visit_block_math, None))
