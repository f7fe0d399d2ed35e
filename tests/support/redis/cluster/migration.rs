//! Moves a slot to another master.

use super::super::patience::until;
use super::RedisCluster;

/// How many keys are moved at once: few, so that clients find slots of which each side has a part.
const BATCH: usize = 10;

/// A slot between two masters: for missing keys, the former answers `ASK`.
#[derive(Debug)]
#[must_use = "a slot whose move is not finished stays between two masters"]
pub(crate) struct Migration<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a RedisCluster, slot: u16, to: usize) -> Self {
        let migration = Self {
            cluster,
            slot,
            from: cluster.master_of(slot),
            to,
        };
        let [from, to] = [migration.from, to].map(|node| cluster.nodes[node].id.as_str());
        // The new master first: it must accept clients that the former redirects.
        migration.set_slot(migration.to, &["IMPORTING", from]);
        migration.set_slot(migration.from, &["MIGRATING", to]);
        migration
    }

    /// Moves all keys.
    pub(crate) fn move_keys(&self) {
        while self.move_some(BATCH) > 0 {}
    }

    /// Moves at most so many keys, and returns how many that were.
    pub(crate) fn move_some(&self, at_most: usize) -> usize {
        let mut former = self.cluster.admin(self.from);
        let keys: Vec<Vec<u8>> = redis::cmd("CLUSTER")
            .arg("GETKEYSINSLOT")
            .arg(self.slot)
            .arg(at_most)
            .query(&mut former)
            .expect("the keys of a slot");
        if keys.is_empty() {
            return 0;
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate
            .arg("127.0.0.1")
            .arg(self.cluster.nodes[self.to].process.port())
            .arg("")
            .arg(0)
            .arg(10_000);
        if let Some(account) = self.cluster.account() {
            migrate.arg("AUTH2").arg(account.name).arg(account.password);
        }
        // A key that a client removed meanwhile is no error.
        let _: String = migrate
            .arg("KEYS")
            .arg(&keys)
            .query(&mut former)
            .expect("keys that move");
        keys.len()
    }

    /// Gives the slot, which has no more keys at the former master, to the new one, and waits until all nodes know.
    pub(crate) fn finish(self) {
        let id = &self.cluster.nodes[self.to].id;
        let mut nodes = self.cluster.masters();
        // The new master first, as the former must not refer clients to one that does not know; the others last.
        nodes.sort_by_key(|&node| match node {
            node if node == self.to => 0,
            node if node == self.from => 1,
            _ => 2,
        });
        for node in nodes {
            self.set_slot(node, &["NODE", id]);
        }
        until("all nodes know where a slot went", || {
            (self.cluster.agreed()?.master_of(self.slot).as_ref() == Some(id)).then_some(())
        });
    }

    fn set_slot(&self, node: usize, to: &[&str]) {
        let slot = self.slot.to_string();
        let command = [&["CLUSTER", "SETSLOT", &slot], to].concat();
        let () = self.cluster.ask(node, &command);
    }
}
