# SPDX-License-Identifier: GPL-2.0
"""How Sphinx builds these pages: "make docs", HTML below build/docs.

Nothing is fetched: the theme comes with Sphinx, and there are no extensions.
"""

project = "SCIF for Linux"
author = "The SCIF for Linux authors"
copyright = author

root_doc = "index"
language = "en"

# A reference that leads nowhere is a warning, and "make docs" fails on warnings.
nitpicky = True

# Code blocks say what they are in; what does not is not coloured.
highlight_language = "none"

html_theme = "alabaster"
html_theme_options = {
    "description": "Connections and one-sided memory access between hosts joined by PCIe",
    "fixed_sidebar": True,
    "page_width": "1180px",
    "body_max_width": "auto",
    "sidebar_width": "230px",
    "font_family": "sans-serif",
    "font_size": "16px",
}
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}
html_copy_source = False
html_show_sourcelink = False
# Options are told from dashes, and both must stay what was typed.
smartquotes = False
