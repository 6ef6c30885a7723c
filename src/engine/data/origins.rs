//! The original tubes of dead letters.
//!
//! Owns the names of the tubes, each stored once for all its dead letters. Must not depend on jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use super::NIL;

/// Bytes charged for an origin, excluding its name.
const ORIGIN_COST: u64 = 128;

#[derive(Debug, Default)]
pub struct Origins {
    /// The names with the numbers of dead letters.
    pub names: Slab<(Arc<[u8]>, u32)>,
    numbers: BTreeMap<Arc<[u8]>, u32>,
    pub memory: u64,
}

impl Origins {
    /// Returns the number of the origin.
    pub fn add(&mut self, name: &[u8]) -> u32 {
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let name: Arc<[u8]> = name.into();
                self.memory += ORIGIN_COST + name.len() as u64;
                let number = self.names.insert((name.clone(), 0)) as u32;
                self.numbers.insert(name, number);
                number
            }
        };
        self.names[number as usize].1 += 1;
        number
    }

    pub fn remove(&mut self, number: u32) {
        if number == NIL {
            return;
        }
        let (name, count) = &mut self.names[number as usize];
        *count -= 1;
        if *count == 0 {
            self.memory -= ORIGIN_COST + name.len() as u64;
            self.numbers.remove(name);
            self.names.remove(number as usize);
        }
    }

    pub fn name(&self, number: u32) -> Option<&[u8]> {
        self.names.get(number as usize).map(|(name, _)| &**name)
    }
}
