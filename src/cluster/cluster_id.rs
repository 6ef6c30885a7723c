//! Checks that all servers of a URL belong to one etcd cluster.
//!
//! Owns the identifier of that cluster, which each response contains. With two clusters in one URL, there would be two
//! queues, each with an active server. Must not send requests.

use std::io;

use crate::shared::lock_order::LeafMutex;

#[derive(Default)]
pub struct ClusterId {
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    /// The first identifier, and the server that sent it.
    first: Option<(String, String)>,
    /// The error after two servers have sent different identifiers. It is permanent, because it is unknown which
    /// identifier is right.
    problem: Option<String>,
}

impl ClusterId {
    /// Fails if two servers belong to different clusters.
    pub fn check(&self) -> io::Result<()> {
        let problem = self.state.lock().problem.clone();
        problem.map_or(Ok(()), |problem| Err(io::Error::new(io::ErrorKind::InvalidInput, problem)))
    }

    /// Checks the identifier in the response of a server. Returns `false` if it contains none, as error responses do.
    pub fn check_response(&self, endpoint: &str, answer: &[u8]) -> io::Result<bool> {
        let Some(id) = find(answer) else { return Ok(false) };
        let mut state = self.state.lock();
        let (first, other) = state.first.get_or_insert_with(|| (id.to_owned(), endpoint.to_owned())).clone();
        if first != id && state.problem.is_none() {
            state.problem = Some(format!(
                "etcd at {other} and etcd at {endpoint} are different clusters ({first} and {id}): make them one cluster \
                 (see etcdctl member list), then restart beanpole"
            ));
        }
        drop(state);
        self.check().map(|()| true)
    }
}

/// Returns the identifier in the header of a response, which precedes everything that clients have stored.
fn find(answer: &[u8]) -> Option<&str> {
    let text = answer.get(..answer.len().min(200))?;
    let text = text.utf8_chunks().next()?.valid();
    let (_, rest) = text.split_once(r#""cluster_id":"#)?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_two_clusters_are_told_apart() {
        let answer = |id: u64| format!(r#"{{"header":{{"cluster_id":"{id}","member_id":"1"}},"kvs":[]}}"#).into_bytes();
        let cluster = ClusterId::default();
        assert!(!cluster.check_response("a:2379", br#"{"error":"no leader"}"#).expect("no problem"));
        assert!(cluster.check_response("a:2379", &answer(7)).expect("no problem"));
        assert!(cluster.check_response("b:2379", &answer(7)).expect("no problem"));
        let problem = cluster.check_response("c:2379", &answer(8)).expect_err("another cluster").to_string();
        assert!(problem.starts_with("etcd at a:2379 and etcd at c:2379 are different clusters (7 and 8)"), "{problem}");
        assert!(cluster.check_response("a:2379", &answer(7)).is_err() && cluster.check().is_err());
    }
}
