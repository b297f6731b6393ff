# SPDX-License-Identifier: GPL-2.0
"""Which source file of a Rust crate uses which other, and where it says so.

A crate is read from its root along the "mod" lines. Every path in a file, in a "use" or in code,
is followed to the file that defines what it names: through modules, names that an earlier "use"
has brought in, and re-exports. That makes an arrow from file to file.

No arrow are: code for tests only; a "mod" line, and a "pub use" of one's own children; visibility
(pub(in ...)); names that a macro of the kernel makes in every module, such as LocalModule. Not
seen are methods, whose files no path names, and what macros put together from pieces.
"""

import os
import re
from typing import NamedTuple

import rust_source

# The names that module! puts into the root of a module.
GENERATED = {"LocalModule", "THIS_MODULE"}


class Arrow(NamedTuple):
    """What in the file SOURCE, in which line, names something of the file TARGET: TEXT."""

    source: str
    line: int
    target: str
    text: str


class Module:
    """A module, inline ones included: where it is and the names in it."""

    def __init__(self, file, path, parent):
        self.file = file
        self.path = path
        self.parent = parent
        self.children = {}
        self.imports = {}
        self.globs = []
        self.items = set()

    def is_inside(self, other):
        """Whether this is a module below OTHER."""
        return len(self.path) > len(other.path) and self.path[: len(other.path)] == other.path


def _place(target):
    """The module of what a path was followed to: itself, or the one of an item."""
    return target if isinstance(target, Module) else target[0]


class _Import(NamedTuple):
    """What a "use" has brought into a module, and whether it hands that on."""

    segments: tuple
    public: bool
    line: int


class _Mention(NamedTuple):
    """A path somewhere in the code of a module."""

    module: Module
    segments: tuple
    line: int


def _relative(path, root):
    return os.path.relpath(path, root)


def _file_of(folder, name):
    """The file of a module that is declared where its children would be in FOLDER."""
    choices = (os.path.join(folder, name + ".rs"), os.path.join(folder, name, "mod.rs"))
    return next((choice for choice in choices if os.path.exists(choice)), None)


def _is_name(text):
    return text[0].isalpha() or text[0] == "_"


def _unused(name, table):
    """A key for another thing of the same NAME: one of another configuration, or "_"."""
    while name in table:
        name += " "
    return name


class Crate:
    """A crate: its modules, and the arrows between its files."""

    def __init__(self, root_file, base):
        """ROOT_FILE is lib.rs, main.rs or the like; files are named as below BASE."""
        self.base = base
        self.files = set()
        self.mentions = []
        self.missing = []
        self.root = Module(_relative(root_file, base), (), None)
        self._read(self.root, root_file)

    # Reading

    def _read(self, module, file):
        with open(file, encoding="utf-8") as source:
            found = rust_source.words(source.read())
        if rust_source.for_tests_only(found):
            found = []
        self.files.add(module.file)
        found, tests = rust_source.without_tests(found)
        reader = _Reader(self, module, file)
        reader.read(found)
        self._reach(reader.folder, tests)

    def _reach(self, folder, tests):
        """Notes the files of modules that are for tests only, and of theirs."""
        for name in rust_source.declared(tests):
            file = _file_of(folder, name)
            if file and _relative(file, self.base) not in self.files:
                self.files.add(_relative(file, self.base))
                with open(file, encoding="utf-8") as source:
                    self._reach(os.path.join(folder, name), rust_source.words(source.read()))

    def declare(self, parent, folder, name, where, path):
        """A "mod NAME;" in PARENT, whose children are in FOLDER; WHERE is its file and line."""
        file = os.path.join(os.path.dirname(where[0]), path) if path else _file_of(folder, name)
        if not file or not os.path.exists(file):
            self.missing.append((_relative(where[0], self.base), where[1], name))
            return
        child = Module(_relative(file, self.base), parent.path + (name,), parent)
        parent.children[_unused(name, parent.children)] = child
        self._read(child, file)

    # Following names

    def _lookup(self, module, name, seen):
        """What NAME is in MODULE: a Module, a pair (Module, item), or None."""
        if name in module.children:
            return module.children[name]
        if name in module.items:
            return (module, name)
        if (module, name) in seen:
            return None
        seen = seen | {(module, name)}
        if name in module.imports:
            return self.resolve(module, module.imports[name].segments, seen)
        for each in module.globs:
            target = self.resolve(module, each.segments, seen)
            if isinstance(target, Module):
                found = self._lookup(target, name, seen)
                if found:
                    return found
        return None

    def _first(self, module, name, seen):
        if name == "crate":
            return self.root
        if name == "self":
            return module
        if name == "super":
            return module.parent
        return self._lookup(module, name, seen)

    def resolve(self, module, segments, seen=frozenset()):
        """What a path in MODULE leads to; None if that is another crate, or nothing we know."""
        at = self._first(module, segments[0], seen)
        for name in segments[1:]:
            if not isinstance(at, Module):
                return at
            if name == "self":
                continue
            if name == "super":
                at = at.parent
                continue
            found = self._lookup(at, name, seen)
            # A name that no import has brought in may come from a macro: it still belongs to the
            # module.
            at = found or (None if name in at.imports else (at, name))
        return at

    # Arrows

    def arrows(self):
        """All of them, in the order of the files; one for each pair of files and name."""
        found = []
        for module in self._modules(self.root):
            for each in list(module.imports.values()) + module.globs:
                self._of_import(found, module, each)
        for mention in self.mentions:
            self._of_mention(found, mention)
        return sorted(set(found))

    def _modules(self, module):
        yield module
        for child in module.children.values():
            yield from self._modules(child)

    def _add(self, found, module, target, line, segments):
        place = _place(target)
        if not isinstance(target, Module) and place is self.root and target[1] in GENERATED:
            return
        if place.file != module.file:
            found.append(Arrow(module.file, line, place.file, "::".join(segments)))

    def _of_import(self, found, module, each):
        target = self.resolve(module, each.segments)
        if target is None:
            return
        place = _place(target)
        if each.public and place.is_inside(module):
            return
        if isinstance(target, Module) and self._only_passed(module, target):
            return
        self._add(found, module, target, each.line, each.segments)

    def _only_passed(self, module, target):
        """Whether a module that was brought in is only the way to what is in other files."""
        ends = []
        for mention in self.mentions:
            if mention.module.file == module.file and len(mention.segments) > 1:
                if self.resolve(mention.module, mention.segments[:1]) is target:
                    end = self.resolve(mention.module, mention.segments)
                    ends.append(end is None or _place(end).file != target.file)
        return bool(ends) and all(ends)

    def _of_mention(self, found, mention):
        module, segments = mention.module, mention.segments
        if segments[0] not in ("crate", "self", "super"):
            first = self._lookup(module, segments[0], frozenset())
            # The import has its own arrow to the item that it brings in, unless the path goes on.
            if not isinstance(first, Module):
                return
            target = self.resolve(module, segments)
            if target is not None:
                place = _place(target)
                if place.file == first.file and segments[0] not in module.children:
                    return
        target = self.resolve(module, segments)
        if target is not None:
            self._add(found, module, target, mention.line, segments)


class _Reader:
    """Reads the words of one file into modules of a crate."""

    def __init__(self, crate, module, file):
        self.crate = crate
        self.module = module
        self.file = file
        self.blocks = []
        # The folder in which the children of a module in this file are searched.
        folder, name = os.path.split(file)
        own = name.removesuffix(".rs")
        is_root = module.parent is None or own == "mod"
        self.folder = folder if is_root else os.path.join(folder, own)
        self.folders = {module: self.folder}

    def read(self, words):
        self.words = words
        index = 0
        while index < len(words):
            index = self._step(index)

    def _text(self, index):
        return self.words[index].text if 0 <= index < len(self.words) else ""

    def _step(self, index):
        text = self._text(index)
        if text == "{":
            self.blocks.append(None)
        elif text == "}":
            ended = self.blocks.pop() if self.blocks else None
            self.module = ended or self.module
        elif text == "pub" and self._text(index + 1) == "(" and self._text(index + 2) == "in":
            return rust_source.closing(self.words, index + 1) + 1
        elif text == "mod" and self._text(index + 1) and _is_name(self._text(index + 1)):
            return self._module_item(index)
        elif text == "use" and self._text(index + 1) != "<":
            return self._use_item(index)
        elif _is_name(text):
            return self._name(index)
        return index + 1

    def _in_module_scope(self):
        return not self.blocks or self.blocks[-1] is not None

    def _path_attribute(self, index):
        """The text of #[path = ...] is a string, which the words lack: read it from the file."""
        if self._text(index - 1) in ("pub", ")"):
            while index > 0 and self._text(index - 1) != "]":
                index -= 1
        if [self._text(index - back) for back in (4, 3, 2, 1)] != ["[", "path", "=", "]"]:
            return None
        with open(self.file, encoding="utf-8") as source:
            line = source.read().splitlines()[self.words[index - 3].line - 1]
        named = re.search(r'path\s*=\s*"([^"]*)"', line)
        return named and named.group(1)

    def _module_item(self, index):
        name = self._text(index + 1)
        if self._text(index + 2) == ";":
            where = (self.file, self.words[index].line)
            path = self._path_attribute(index)
            self.crate.declare(self.module, self.folders[self.module], name, where, path)
        elif self._text(index + 2) == "{":
            child = Module(self.module.file, self.module.path + (name,), self.module)
            self.module.children[_unused(name, self.module.children)] = child
            self.folders[child] = os.path.join(self.folders[self.module], name)
            self.blocks.append(self.module)
            self.module = child
        return index + 3

    def _name(self, index):
        """A word in code: the beginning of a path, or an item's own name, or neither."""
        before, text = self._text(index - 1), self._text(index)
        if text in ("struct", "enum", "union", "trait", "fn", "const", "static", "type"):
            return self._definition(index)
        if text == "macro_rules" and self._text(index + 1) == "!":
            self.module.items.add(self._text(index + 2))
            return index + 3
        if before in ("::", "."):
            return index + 1
        segments, at = [text], index + 1
        while self._text(at) == "::" and self._text(at + 1) and _is_name(self._text(at + 1)):
            segments.append(self._text(at + 1))
            at += 2
        if len(segments) > 1:
            self.crate.mentions.append(_Mention(self.module, tuple(segments), self.words[index].line))
        return at

    def _definition(self, index):
        at = index + 1
        if self._text(at) == "mut":
            at += 1
        name = self._text(at)
        # "*const T" is none, nor is "const fn" yet.
        is_pointer = self._text(index - 1) in ("*", "raw")
        if is_pointer or not name or not _is_name(name) or name in ("fn", "unsafe", "extern", "async"):
            return index + 1
        if self._in_module_scope():
            self.module.items.add(name)
        return at + 1

    def _use_item(self, index):
        public = self._text(index - 1) in ("pub", ")")
        at = index + 1
        if self._text(at) == "::":
            while at < len(self.words) and self._text(at) != ";":
                at += 1
            return at + 1
        return self._tree(at, (), public) + 1

    def _tree(self, at, prefix, public):
        """One tree of a "use", up to the "," or ";" or "}" behind it, whose index it returns."""
        segments, line = prefix, self.words[at].line if at < len(self.words) else 0
        while at < len(self.words):
            text = self._text(at)
            if text == "{":
                at += 1
                while at < len(self.words) and self._text(at) != "}":
                    at = self._tree(at, segments, public)
                    at += self._text(at) == ","
                return at + 1
            if text == "*":
                self.module.globs.append(_Import(segments, public, line))
                return at + 1
            if text in (",", ";", "}"):
                break
            if text == "as":
                self._bring_in(segments, self._text(at + 1), public, line)
                return at + 2
            if _is_name(text):
                segments, line = segments + (text,), self.words[at].line
            at += 1
        if segments != prefix:
            self._bring_in(segments, segments[-1], public, line)
        return at

    def _bring_in(self, segments, name, public, line):
        if segments[-1] == "self" and len(segments) > 1:
            segments = segments[:-1]
            name = segments[-1] if name == "self" else name
        name = _unused(name, self.module.imports)
        self.module.imports[name] = _Import(segments, public, line)
