// SPDX-License-Identifier: GPL-2.0

//! The kernel module that drives a device, by `modules.alias`.

/// Prefix of the names of the bridges' drivers, which selects the lines of `modules.alias` about
/// bridges.
const BRIDGES: &str = "ntb_hw_";

/// The drivers of DMA engines that the module can use.
const ENGINES: [&str; 3] = ["ioatdma", "plx_dma", "switchtec_dma"];

/// The aliases of some drivers.
#[derive(Clone, Debug, Default)]
pub struct Aliases(Vec<(String, String)>);

impl Aliases {
    /// Returns the aliases of bridges, from the text of `modules.alias`.
    pub fn of_bridges(text: &str) -> Self {
        Self::of(text, |module| module.starts_with(BRIDGES))
    }

    /// Returns the aliases of DMA engines.
    pub fn of_engines(text: &str) -> Self {
        Self::of(text, |module| ENGINES.contains(&module))
    }

    fn of(text: &str, is_one: impl Fn(&str) -> bool) -> Self {
        let aliases = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (Some("alias"), Some(pattern), Some(module)) =
                (words.next(), words.next(), words.next())
            else {
                return None;
            };
            is_one(module).then(|| (pattern.to_owned(), module.to_owned()))
        });
        Self(aliases.collect())
    }

    /// Returns the module for a device of that `modalias`.
    pub fn module(&self, modalias: &str) -> Option<&str> {
        let found = self
            .0
            .iter()
            .find(|(pattern, _)| matches(pattern, modalias));
        found.map(|(_, module)| module.as_str())
    }

    /// Returns whether there are no aliases at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether a text matches a pattern, in which `*` is anything. Aliases of PCI devices have
/// no other wildcard.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: &str = "pci:v00008086d00000DB4sv00000000sd00000000bc06sc80i00";

    #[test]
    fn alias_patterns_match_with_wildcards() {
        assert!(matches("pci:v00008086d00000DB4sv*sd*bc*sc*i*", INTEL));
        assert!(!matches("pci:v00008086d00000DB5sv*sd*bc*sc*i*", INTEL));
        assert!(matches("*", ""));
        assert!(matches("a*b", "ab") && matches("a*b", "axxb"));
        assert!(!matches("a*b", "abx") && !matches("a*b*c", "acb"));
        assert!(matches("abc", "abc") && !matches("abc", "abcd"));
    }

    #[test]
    fn only_aliases_of_bridges_and_engines_are_kept() {
        let text = "# Aliases\n\
            alias pci:v00008086d00000DB4sv*sd*bc*sc*i* ntb_hw_intel\n\
            alias pci:v00008086d*sv*sd*bc*sc*i* something_else\n\
            alias pci:v000010B5d000087D0sv*sd*bc*sc*i* plx_dma\n\
            nonsense\n";
        let engines = Aliases::of_engines(text);
        assert_eq!(engines.module(INTEL), None);
        let engine = "pci:v000010B5d000087D0sv0sd0bc0sc0i0";
        assert_eq!(engines.module(engine), Some("plx_dma"));
        let aliases = Aliases::of_bridges(text);
        assert_eq!(aliases.module(INTEL), Some("ntb_hw_intel"));
        assert_eq!(aliases.module("pci:v00001234d0sv0sd0bc0sc0i0"), None);
        assert!(!aliases.is_empty() && Aliases::of_bridges("").is_empty());
    }
}
