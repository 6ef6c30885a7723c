//! A request for each command that takes one turn, and the test that compares the commands of all protocols with the
//! tables of long and of short commands.
//!
//! Must not contain commands that are interrupted: these belong in `rows`.

use super::rows::packet;
use super::*;

/// The name of each command, and the requests that lead to this command. Only the last request is measured. `prepare`
/// replaces `{ready}` with a ready job's ID, and so on. A Gearman packet has a kind and comma-separated arguments.
const SHORT: &[(&str, &str)] = &[
    ("beanstalk Put", "put 0 0 10 1 tub:t\r\nx\r\n"),
    ("beanstalk Refused", "put 0 0 10 1\r\nxxx"),
    ("beanstalk Peek", "peek {ready}\r\n"),
    ("beanstalk PeekNext", "use t\r\npeek-ready\r\n"),
    ("beanstalk Reserve", "reserve\r\n"),
    ("beanstalk ReserveWithAbort", "reserve-with-abort 0\r\n"),
    ("beanstalk ReserveJob", "reserve-job {buried}\r\n"),
    ("beanstalk Delete", "delete {ready}\r\n"),
    ("beanstalk Release", "release {reserved} 0 0\r\n"),
    ("beanstalk Bury", "bury {reserved} 0\r\n"),
    ("beanstalk KickJob", "kick-job {buried}\r\n"),
    ("beanstalk Touch", "touch {reserved}\r\n"),
    ("beanstalk StatsJob", "stats-job {ready}\r\n"),
    ("beanstalk StatsGroup", "put 0 0 10 1 tub:t grp:g\r\nx\r\nstats-group g\r\n"),
    ("beanstalk Use", "use t\r\n"),
    ("beanstalk Watch", "watch other\r\n"),
    ("beanstalk Ignore", "watch x1\r\nignore x1\r\n"),
    ("beanstalk ListTubeUsed", "list-tube-used\r\n"),
    ("beanstalk PauseTube", "pause-tube t 10\r\n"),
    ("beanstalk ReserveBatch", "reserve-batch 2 0\r\n"),
    ("beanstalk Wait", "wait {ready} 0\r\n"),
    ("beanstalk Drain", "drain\r\n"),
    ("beanstalk MoveJob", "move-job {ready} x1 0 0\r\n"),
    ("beanstalk LimitTube", "limit-tube t 5\r\n"),
    ("beanstalk Name", "name worker\r\n"),
    ("beanstalk Revoke", "revoke {reserved} 0\r\n"),
    ("beanstalk SetTube", "set-tube t try:3\r\n"),
    ("beanstalk Fail", "fail {reserved} 0 2\r\nno\r\n"),
    ("beanstalk ReserveMode", "reserve-mode weighted\r\n"),
    ("beanstalk Auth", "auth token\r\n"),
    ("beanstalk Quit", "quit\r\n"),
    ("beanstalk BadFormat", "peek x\r\n"),
    ("beanstalk UnknownCommand", "bogus\r\n"),
    ("gearman CanDo", "1 t"),
    ("gearman CantDo", "2 t"),
    ("gearman PreSleep", "4 "),
    ("gearman Submit", "7 t,unique,x"),
    ("gearman Work", "13 H:x:{ready},x"),
    ("gearman GetStatus", "15 H:x:{ready}"),
    ("gearman Echo", "16 x"),
    ("gearman Option", "26 exceptions"),
    ("gearman SetClientId", "22 worker"),
    ("gearman Text", "version\n"),
    ("gearman Refused", "5 "),
    ("gearman OutOfSync", "\0bogus"),
    ("workq Add", "add {uuid} t 1000 1000 1\r\nx\r\n"),
    ("workq Run", "run {uuid} t 1000 0 1\r\nx\r\n"),
    ("workq Result", "{add}result {uuid} 0\r\n"),
    ("workq Complete", "{add}lease q 0\r\ncomplete {uuid} 1\r\nx\r\n"),
    ("workq Delete", "{add}delete {uuid}\r\n"),
    ("workq InspectServer", "inspect server\r\n"),
    ("workq InspectQueue", "inspect queue t\r\n"),
    ("workq InspectJob", "{add}inspect job {uuid}\r\n"),
    ("workq Refused", "bogus\r\n"),
    ("workq Close", "inspect server\n"),
    ("http page", "GET /"),
    ("http healthz", "GET /healthz"),
    ("http readyz", "GET /readyz"),
    ("http find-job", "GET /api/jobs?id={ready}"),
    ("http peek", "GET /api/tubes/t/peek/ready"),
    ("http job", "GET /api/jobs/{ready}"),
    ("http body", "GET /api/jobs/{ready}/body"),
    ("http put", r#"POST /api/tubes/t/put {"body":"x"}"#),
    ("http pause", "POST /api/tubes/t/pause {}"),
    ("http settings", r#"POST /api/tubes/t/settings {"settings":"try:3"}"#),
    ("http kick-job", "POST /api/jobs/{buried}/kick {}"),
    ("http move-job", r#"POST /api/jobs/{buried}/move {"to":"to"}"#),
    ("http delete", "POST /api/jobs/{ready}/delete {}"),
    ("http revoke", "POST /api/jobs/{reserved}/revoke {}"),
    ("http bury", "POST /api/jobs/{ready}/bury {}"),
];

/// Variants without a request of their own: `Long` contains the long commands, `Stats` becomes a long command, only the
/// fast decoder returns `PutInPlace`, and the parser rejects the route `favicon`.
const EXEMPT: [&str; 4] = ["beanstalk Long", "beanstalk Stats", "beanstalk PutInPlace", "http favicon"];

const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

/// Decodes the requests, executes all except the last request, and returns the last request and its client.
fn prepare(world: &mut World, name: &str, text: &str) -> (usize, Request) {
    let job = |state| world.ids(state).pop().expect("a job").to_string();
    let words = [("reserved", State::Reserved), ("ready", State::Ready), ("buried", State::Buried)];
    let text = text.replace("{add}", "add {uuid} q 1000 100000 1\r\nx\r\n").replace("{uuid}", UUID);
    let text = words.iter().fold(text, |text, (word, state)| text.replace(&format!("{{{word}}}"), &job(*state)));
    let (peer, bytes) = match name.split(' ').next() {
        Some("beanstalk") => (world.holder, text.into_bytes()),
        Some("workq") => (world.peer(Wire::Workq), text.into_bytes()),
        Some("http") => {
            let parts: Vec<&str> = text.splitn(3, ' ').collect();
            let bytes = world.http(&parts[..2].join(" "), parts.get(2).unwrap_or(&"")).expect("a request");
            (world.requester, bytes)
        }
        _ => match text.split_once(' ').and_then(|(kind, arguments)| Some((kind.parse().ok()?, arguments))) {
            Some((kind, arguments)) => {
                (world.peer(Wire::Gearman), packet(kind, arguments.replace(',', "\0").as_bytes()))
            }
            None => (world.peer(Wire::Gearman), text.into_bytes()),
        },
    };
    let mut requests = world.decode(peer, &bytes);
    let last = requests.pop().expect("a request");
    for request in requests {
        let mut next = Some(request);
        while let Some(Flow::Continue(rest)) = next.take().map(|request| world.turn(peer, request)) {
            next = Some(*rest);
        }
    }
    (peer, last)
}

fn command_name(request: &Request) -> String {
    match &request.command {
        Command::Beanstalk(command) => format!("beanstalk {}", type_name(command)),
        Command::Http(head) => format!("http {}", head.route().expect("a route").word),
        command => command_kind(command),
    }
}

/// The maximum work of a command that takes one turn, in engine steps: enough to notify a few clients.
const MAX_STEPS: u64 = 4 * 32;

#[test]
fn short_commands_take_one_turn() {
    let problem = |(name, text): &(&str, &str)| {
        let mut world = World::new(true);
        let (peer, request) = prepare(&mut world, name, text);
        let found = command_name(&request);
        if found != *name {
            return Some(format!("{text:?} is {found} instead of {name}"));
        }
        world.steps = 1;
        let kind = match world.turn(peer, request) {
            Flow::Continue(rest) => Some(kind(&rest)),
            _ => None,
        };
        let used = world.engine.steps().used();
        match kind {
            Some(kind) if !KINDS.contains(&&*kind) => Some(format!("{name} continues as {kind}, not in KINDS")),
            _ => (used > MAX_STEPS).then(|| format!("{name} uses {used} steps in one turn")),
        }
    };
    let problems: Vec<String> = SHORT.iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Returns the variants of the enum `name` in a source file.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("pub enum {name} {{")).and_then(|(_, rest)| rest.split_once("\n}"));
    let lines = body.expect("an enum").0.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(char::is_uppercase));
    names
        .map(|line| line.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_command_is_interrupted_or_short() {
    let all = [
        ("beanstalk", variants(include_str!("../beanstalk/command.rs"), "Command")),
        ("beanstalk", variants(include_str!("../beanstalk/command.rs"), "Long")),
        ("gearman", variants(include_str!("../gearman/command.rs"), "Command")),
        ("workq", variants(include_str!("../workq/commands.rs"), "Command")),
        ("http", http::ROUTES.iter().map(|route| route.word.to_owned()).collect()),
    ];
    for (protocol, names) in &all {
        assert!(names.len() > 10, "{protocol}: {names:?}");
        for name in names.iter().map(|name| format!("{protocol} {name}")) {
            let is_short = SHORT.iter().any(|(short, _)| *short == name) || EXEMPT.contains(&&*name);
            let mut kinds = KINDS.iter().filter_map(|kind| kind.strip_prefix(&*name));
            let is_interrupted = kinds.any(|rest| rest.is_empty() || rest.starts_with(' '));
            assert!(is_short != is_interrupted || name == "beanstalk Stats", "{name} must be in exactly one table");
        }
    }
}
