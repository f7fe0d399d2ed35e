//! The table, by its contract.

use std::sync::Arc;

use async_trait::async_trait;

use super::MemoryTable;
use crate::clock::Clock;
use crate::store::table::Table;
use crate::testing::table::{TableFixture, table_conformance};

#[derive(Debug)]
struct Memory;

#[async_trait]
impl TableFixture for Memory {
    async fn table(&self) -> Arc<dyn Table> {
        Arc::new(MemoryTable::new(Clock::system()))
    }
}

table_conformance!(table, Memory);
