//! The tubes that dead letters come from.
//!
//! Owns their names, each of which is stored once for all of its dead letters. Must not know jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use super::NIL;

/// Bytes of account of an origin without its name.
const ORIGIN_COST: u64 = 128;

#[derive(Debug, Default)]
pub struct Origins {
    /// The names, and the number of dead letters from each.
    pub names: Slab<(Arc<[u8]>, u32)>,
    numbers: BTreeMap<Arc<[u8]>, u32>,
    pub memory: u64,
}

impl Origins {
    /// Counts one more dead letter of the tube with this name, and returns the number of the origin.
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

    /// Removes a dead letter of this origin, unless it is [`NIL`].
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
