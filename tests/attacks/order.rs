//! Tests which client gets which job when several events happen at the same moment.

use std::time::Duration;

use crate::trial::Trial;
use crate::wire::Wire;

/// A client that holds two jobs disconnects. A client that is waiting for a job must get the more urgent of the two.
pub fn after_a_hang_up(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    let (mut holder, mut waiter) = (Wire::to(&daemon), Wire::to(&daemon));
    // The less urgent job has the shorter time to run.
    holder.send("put 1 0 1000 6\r\nurgent\r\nput 9 0 10 4\r\ndull\r\nreserve\r\nreserve\r\n");
    holder.expect("INSERTED 1");
    holder.expect("INSERTED 2");
    assert_eq!((holder.job().0, holder.job().0), (1, 2));
    waiter.send("reserve\r\n");
    let waiting = || crate::wire::stat(&daemon, "current-waiting") == 1;
    crate::daemon::wait_until("the client waits", waiting);
    drop(holder);
    let (_, body) = waiter.job();
    trial.same("the reserved job", String::from_utf8_lossy(&body).into_owned(), "urgent".to_owned());
}

/// A put and a release with the same delay arrive in one packet. The first command's job must become ready first.
pub fn two_delays_in_one_packet(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    for _ in 0..20 {
        let mut client = Wire::to(&daemon);
        let first = client.put(b"A", 60);
        client.send("reserve\r\n");
        assert_eq!(client.job().0, first);
        let both = format!("put 0 1000 60 1\r\nB\r\nrelease {first} 0 1000\r\npeek-delayed\r\n");
        client.send(both);
        let second = client.line();
        client.expect("RELEASED");
        let (_, body) = client.job();
        let seen = String::from_utf8_lossy(&body).into_owned();
        client.ask(&format!("delete {first}"), "DELETED");
        let second = second.rsplit(' ').next().unwrap_or_default().to_owned();
        client.ask(&format!("delete {second}"), "DELETED");
        if seen != "B" {
            trial.same("due first", seen, "B".to_owned());
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
