# SPDX-License-Identifier: GPL-2.0
"""The layers as a drawing: a box for each, the highest at the top, in SVG."""

import textwrap
from xml.sax.saxutils import escape

WIDTH = 1000
BOX = (30, 870)
LINE = 18
GAP = 8

STYLE = """\
    .box { stroke-width: 1.3; rx: 5; }
    .c0 { fill: #e4f4e6; stroke: #3f8f50; }
    .c1 { fill: #fff2cf; stroke: #b98a1d; }
    .c2 { fill: #fde5d3; stroke: #c36f2e; }
    .c3 { fill: #f8e1ec; stroke: #ad4a82; }
    .c4 { fill: #e9e8f6; stroke: #6462a6; }
    .name { font-weight: bold; }
    .files { font-family: monospace; font-size: 12px; fill: #46525f; }
    .side { font-size: 12px; fill: #46525f; font-style: italic; text-anchor: middle; }
    .down { stroke: #46525f; stroke-width: 1.3; fill: none; }"""


def _texts(layer):
    """The lines of a box: those at its left, which are files, and those at its right."""
    files = textwrap.wrap(" ".join(layer.entries), 34, break_long_words=False, break_on_hyphens=False)
    return files, textwrap.wrap(layer.purpose, 64, break_long_words=False)


def _box(layer, count, top, height):
    left, width = BOX
    files, purpose = _texts(layer)
    shade = layer.number * 5 // count
    lines = [f'  <rect class="box c{shade}" x="{left}" y="{top}" width="{width}" height="{height}"/>']
    lines.append(f'  <text class="name" x="{left + 14}" y="{top + 24}">{escape(layer.name)}</text>')
    for number, line in enumerate(files):
        y = top + 24 + number * LINE
        lines.append(f'  <text class="files" x="{left + 130}" y="{y}">{escape(line)}</text>')
    for number, line in enumerate(purpose):
        lines.append(f'  <text x="{left + 392}" y="{top + 24 + number * LINE}">{escape(line)}</text>')
    return lines


def draw(layers):
    """The drawing of LAYERS, the highest first."""
    top, boxes = 30, []
    for layer in layers:
        height = 20 + LINE * max(len(texts) for texts in _texts(layer))
        boxes += _box(layer, len(layers), top, height)
        top += height + GAP
    below = top - GAP
    told = "; ".join(f"{layer.name}: {layer.purpose}" for layer in layers)
    told = "\n  ".join(textwrap.wrap(escape(f"From top to bottom. {told}."), 90))
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<!-- SPDX-License-Identifier: GPL-2.0 -->",
        "<!-- Made by scripts/layers picture from drivers/misc/scif/LAYERS. -->",
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {below + 30}" width="{WIDTH}"'
        f' height="{below + 30}"',
        '     role="img" aria-labelledby="title desc" font-family="Helvetica, Arial, sans-serif"',
        '     font-size="14" fill="#1d2733">',
        '  <title id="title">The layers of the module</title>',
        f'  <desc id="desc">{told}</desc>',
        f"  <style>\n{STYLE}\n  </style>",
        '  <defs>\n    <marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
        ' markerHeight="8" orient="auto">\n      <path d="M0 1 L10 5 L0 9 z" fill="#46525f"/>\n'
        "    </marker>\n  </defs>",
        f'  <rect x="1" y="1" width="{WIDTH - 2}" height="{below + 28}" rx="12" fill="#ffffff"'
        ' stroke="#c3cad2" stroke-width="2"/>',
        *boxes,
        f'  <path class="down" d="M930 40 V{below - 10}" marker-end="url(#end)"/>',
        f'  <text class="side" transform="translate(958 {(below + 30) // 2}) rotate(90)">'
        "imports run down only</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
