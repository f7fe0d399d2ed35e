//! Parses what a node of a cluster knows of it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The nodes, who replicates whom, and the owners of slots; equal where nodes agree.
#[derive(Debug, PartialEq)]
pub(super) struct View {
    members: BTreeMap<String, Member>,
}

#[derive(Debug, PartialEq)]
struct Member {
    master: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    /// Reads the answer to `CLUSTER NODES`.
    pub(super) fn parse(text: &str) -> Self {
        let members = text.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [id, _, flags, master, _, _, _, _, ref slots @ ..] = *fields else {
                panic!("no line of CLUSTER NODES: {line}");
            };
            // Until both have shaken hands it is not known by its own id.
            if flags.split(',').any(|flag| flag == "handshake") {
                return None;
            }
            let member = Member {
                master: (master != "-").then(|| master.to_owned()),
                // A slot in brackets is being moved, and mentioned only by the two nodes between which it is.
                slots: slots
                    .iter()
                    .filter(|slots| !slots.starts_with('['))
                    .map(|slots| range(slots))
                    .collect(),
            };
            Some((id.to_owned(), member))
        });
        Self {
            members: members.collect(),
        }
    }

    pub(super) fn knows<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> bool {
        ids.into_iter().all(|id| self.members.contains_key(id))
    }

    pub(super) fn master_of(&self, slot: u16) -> Option<String> {
        self.members
            .iter()
            .find(|(_, member)| member.slots.iter().any(|range| range.contains(&slot)))
            .map(|(id, _)| id.clone())
    }

    /// Those that have slots.
    pub(super) fn masters(&self) -> Vec<String> {
        self.members
            .iter()
            .filter(|(_, member)| !member.slots.is_empty())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// How many replicate another.
    pub(super) fn replicas(&self) -> usize {
        let members = self.members.values();
        members.filter(|member| member.master.is_some()).count()
    }
}

/// The slots of `7` or `7-9`.
fn range(text: &str) -> RangeInclusive<u16> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let [first, last] = [first, last].map(|slot| slot.parse().expect("a slot"));
    first..=last
}
