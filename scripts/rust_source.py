# SPDX-License-Identifier: GPL-2.0
"""Rust source as words, for the scripts that look at it: no comments, no strings.

What it knows of the language is where words begin and end, which brackets belong
together, and what is for tests only. It never fails: what it does not know is a word
of one character.
"""

import re
from typing import NamedTuple


class Word(NamedTuple):
    """An identifier, a "::", or any other single character, and the line it is in."""

    text: str
    line: int


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = set(OPENING.values())

_LEXEME = re.compile(
    r"""
    (?P<newline>\n)
  | (?P<comment>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>(?:b|c)?"(?:\\.|[^"\\])*")
  | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<number>\d\w*(?:\.\d\w*)?)
  | (?P<word>(?:r\#)?[A-Za-z_]\w*)
  | (?P<path>::)
  | (?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_NESTED = re.compile(r"/\*|\*/")


def _after_block_comment(text, position):
    """Where a comment that may hold others ends; POSITION is behind its first "/*"."""
    depth = 1
    while depth:
        found = _NESTED.search(text, position)
        if not found:
            return len(text)
        depth += 1 if found.group() == "/*" else -1
        position = found.end()
    return position


def words(text):
    """TEXT as a list of Word. Strings, characters and numbers are left out."""
    found, line, position = [], 1, 0
    while lexeme := _LEXEME.search(text, position):
        line += text.count("\n", position, lexeme.start())
        end = lexeme.end()
        if lexeme.lastgroup == "block":
            end = _after_block_comment(text, end)
        elif lexeme.lastgroup in ("word", "path", "other"):
            found.append(Word(lexeme.group().removeprefix("r#"), line))
        elif lexeme.lastgroup == "lifetime":
            found.append(Word("'", line))
        line += text.count("\n", lexeme.start(), end)
        position = end
    return found


def head(text):
    """What the "//!" lines at the top say, as one line."""
    lines = []
    for line in text.splitlines():
        if line.startswith("//!"):
            lines.append(line[3:].strip())
        elif line.strip() and not line.startswith("//"):
            break
    return re.sub(r"\s+", " ", " ".join(lines))


def closing(found, index):
    """The index of the bracket that closes the one at INDEX, or of the end."""
    depth = 0
    for at in range(index, len(found)):
        if found[at].text in OPENING:
            depth += 1
        elif found[at].text in CLOSING:
            depth -= 1
            if depth == 0:
                return at
    return len(found)


_TEST_ATTRIBUTE = re.compile(r"cfg \( (all \( )?test\b(?! \()|kunit_tests\b|test \]")
_ITEMS = frozenset(
    "mod use fn impl const static struct enum union trait type unsafe extern async macro_rules".split()
)


def _end_of_item(found, index):
    """The index behind the item, field, arm or statement that begins at INDEX."""
    while found[index : index + 1] and found[index].text == "#":
        index = closing(found, index + 1) + 1
    if found[index : index + 1] and found[index].text == "pub":
        index += 1
        if found[index : index + 1] and found[index].text == "(":
            index = closing(found, index) + 1
    item = index < len(found) and found[index].text in _ITEMS
    while index < len(found):
        text = found[index].text
        if text in OPENING:
            index = closing(found, index)
            if text == "{" and item:
                return index + 1
        elif text == ";" or (text == "," and not item):
            return index + 1
        elif text in CLOSING:
            return index
        index += 1
    return index


def for_tests_only(found):
    """Whether the whole file is: #![cfg(test)]."""
    text = " ".join(word.text for word in found[:8])
    return bool(re.match(r"# ! \[ cfg \( test\b", text))


def without_tests(found):
    """FOUND without the items that are compiled for tests only, and those items."""
    kept, tests, index = [], [], 0
    while index < len(found):
        if found[index].text == "#" and found[index + 1 : index + 2] and found[index + 1].text == "[":
            end = closing(found, index + 1)
            attribute = " ".join(word.text for word in found[index + 2 : end + 1])
            if _TEST_ATTRIBUTE.match(attribute):
                index = _end_of_item(found, end + 1)
                tests.extend(found[end + 1 : index])
                continue
            kept.extend(found[index : end + 1])
            index = end + 1
            continue
        kept.append(found[index])
        index += 1
    return kept, tests


def declared(found):
    """The names of the modules that have files of their own."""
    for index, word in enumerate(found[:-2]):
        if word.text == "mod" and found[index + 2].text == ";":
            yield found[index + 1].text
