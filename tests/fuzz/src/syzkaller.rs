// SPDX-License-Identifier: GPL-2.0

//! Checks that the syzkaller description of /dev/scif (`tests/fuzz/syzkaller`) matches the headers:
//! all calls, their numbers, and the structures field by field. A compiler evaluates the headers.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Command;
use std::process::Stdio;

const DESCRIPTION: &str = include_str!("../syzkaller/scif.txt");
const CONSTANTS: &str = include_str!("../syzkaller/scif.txt.const");

/// The headers that the description covers.
const HEADERS: &str = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <sys/mman.h>\n#include <linux/scif_ioctl.h>\n\
                       #include <linux/scif_services.h>\n";

/// A structure: its name, and its fields with their types.
struct Structure<'a> {
    name: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

/// Returns the lines that are neither empty nor comments.
fn lines() -> impl Iterator<Item = &'static str> {
    DESCRIPTION
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn structures() -> Vec<Structure<'static>> {
    let mut all: Vec<Structure> = Vec::new();
    for line in lines() {
        if let Some(name) = line.strip_suffix(" {") {
            let fields = Vec::new();
            all.push(Structure { name, fields });
        } else if let Some(field) = line.strip_prefix('\t') {
            let mut columns = field.split('\t');
            let field = (columns.next().unwrap(), columns.next().expect(line));
            all.last_mut().expect(line).fields.push(field);
        }
    }
    all
}

/// Returns the names of the calls behind `ioctl$`, and the types that their arguments point to.
fn calls() -> BTreeMap<&'static str, &'static str> {
    let calls = lines().filter_map(|line| line.strip_prefix("ioctl$"));
    let call = |line: &'static str| {
        let (name, rest) = line.split_once('(').unwrap();
        let cmd = format!("cmd const[{name}]");
        assert!(rest.contains(&cmd), "{line}");
        let argument = rest
            .split_once(" arg ")
            .unwrap()
            .1
            .strip_suffix(')')
            .unwrap();
        let pointed = argument.strip_prefix("ptr[").and_then(|rest| {
            let (_, to) = rest.strip_suffix(']')?.split_once(", ")?;
            Some(to)
        });
        (name, pointed.unwrap_or(argument))
    };
    calls.map(call).collect()
}

/// Returns the base types of the resources.
fn resources() -> BTreeMap<&'static str, &'static str> {
    let resources = lines().filter_map(|line| line.strip_prefix("resource "));
    let base = |line: &'static str| {
        let (name, rest) = line.split_once('[').unwrap();
        (name, rest.split_once(']').unwrap().0)
    };
    resources.map(base).collect()
}

/// Returns the C type of a field.
fn c_type(field: &str) -> String {
    let (word, arguments) = field.split_once('[').unwrap_or((field, ""));
    match word {
        "int8" => "__s8".to_owned(),
        "int16" => "__s16".to_owned(),
        "int32" | "fd" => "__s32".to_owned(),
        "int64" | "ptr64" | "vma64" => "__s64".to_owned(),
        "const" | "flags" | "len" | "bytesize" => {
            let size = arguments.strip_suffix(']').unwrap().rsplit(", ").next();
            c_type(size.unwrap())
        }
        name => match resources().get(name) {
            Some(base) => c_type(base),
            None => format!("struct of_syzkaller_{name}"),
        },
    }
}

/// Returns whether the compiler accepts this source after the headers, and its output.
fn is_taken(source: &str, arguments: &[&str]) -> (bool, String) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut compiler = Command::new("cc")
        .args(["-std=gnu11", "-x", "c", "-"])
        .args(arguments)
        .arg(format!("-I{root}/include/uapi"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a compiler");
    let mut input = compiler.stdin.take().expect("a pipe");
    write!(input, "{HEADERS}{source}").expect("a reader");
    drop(input);
    let output = compiler.wait_with_output().expect("a status");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

/// Returns the calls that the headers define.
fn calls_of_headers() -> BTreeSet<String> {
    let (is_right, text) = is_taken("", &["-E", "-dM"]);
    assert!(is_right);
    let macros = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define "));
    let calls = macros.filter(|line| line.starts_with("SCIF_") && line.contains("_IO"));
    calls
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .filter(|name| name != "SCIF_IOCTL_H")
        .collect()
}

#[test]
fn every_ioctl_of_the_headers_is_described() {
    let described: BTreeSet<String> = calls().into_keys().map(str::to_owned).collect();
    assert_eq!(described, calls_of_headers());
    assert_eq!(described.len(), 25);
}

#[test]
fn described_structures_match_the_headers() {
    let mut source = String::new();
    for Structure { name, fields } in structures() {
        source += &format!("struct of_syzkaller_{name} {{\n");
        for (field, described) in &fields {
            source += &format!("\t{} {field};\n", c_type(described));
        }
        source += "};\n";
        let compared = |property: &str, field: &str| {
            let of = |prefix| match property {
                "sizeof" => format!("sizeof(struct {prefix}{name})"),
                "size of" => format!("sizeof(((struct {prefix}{name} *)0)->{field})"),
                _ => format!("__builtin_offsetof(struct {prefix}{name}, {field})"),
            };
            let (one, other) = (of(""), of("of_syzkaller_"));
            format!("_Static_assert({one} == {other}, \"{property} {name} {field}\");\n")
        };
        source += &compared("sizeof", "");
        for (field, _) in &fields {
            source += &compared("size of", field);
            source += &compared("offset of", field);
        }
    }
    assert!(is_taken(&source, &["-fsyntax-only"]).0, "{source}");
}

#[test]
fn described_constants_match_the_headers() {
    let constants: BTreeMap<&str, u64> = CONSTANTS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("arches"))
        .map(|line| line.split_once(" = ").expect(line))
        .map(|(name, value)| (name, value.parse().expect(value)))
        .collect();
    let asserted = constants.iter().map(|(name, value)| {
        format!("_Static_assert((unsigned long)({name}) == {value}ul, \"{name}\");\n")
    });
    let source: String = asserted.collect();
    assert!(is_taken(&source, &["-fsyntax-only"]).0, "{source}");

    // Each name that the description uses has to be defined.
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = lines().flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let names = words.filter(|word| word.starts_with(['S', 'O', 'A']) && word.chars().all(is_name));
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(names, constants.into_keys().collect());
}

#[test]
fn every_used_name_is_defined() {
    let mut defined: BTreeSet<&str> = resources().into_keys().collect();
    defined.extend(structures().iter().map(|structure| structure.name));
    defined.extend(lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name)));
    // syzkaller itself defines these names.
    defined.extend(["mmap_prot", "mmap_flags"]);
    let names = lines().flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let used: BTreeSet<&str> = names
        .filter(|word| {
            (word.starts_with("scif_") || word.starts_with("scifioctl_")) && !word.ends_with("_h")
        })
        .filter(|word| !["scif_ioctl", "scif_services", "scif_status"].contains(word))
        .collect();
    let missing: Vec<_> = used.difference(&defined).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (call, argument) in calls() {
        let is_builtin = argument.starts_with("int32");
        assert!(
            is_builtin || defined.contains(argument),
            "{call}: {argument}"
        );
    }
}
