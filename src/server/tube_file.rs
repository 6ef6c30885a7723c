//! The `--tubes` file, with the settings of one tube per line. Tubes that are not in the file keep their settings.

use std::path::Path;

use super::hub::{Hub, TurnScratch};
use crate::engine::{NotSet, TubeSettings, NOBODY};
use crate::protocol::beanstalk::{read_settings, SETTINGS_OVERHEAD};
use crate::protocol::text::{is_tube_name, next_word, unquote_name};
use crate::shared::files;

pub type TubeLine = (Box<[u8]>, TubeSettings);

pub fn read(path: &Path) -> Result<Vec<TubeLine>, String> {
    let fail = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let text = files::read(path).map_err(|error| fail(&error))?;
    let mut tubes = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let wrong = |what: &str| fail(&format!("line {}: {what}: {}", index + 1, line.escape_ascii()));
        let plain = || next_word(line).filter(|(name, _)| is_tube_name(name)).map(|(name, rest)| (name.to_vec(), rest));
        let (name, rest) = unquote_name(line).or_else(plain).ok_or_else(|| wrong("invalid tube name"))?;
        let settings = read_settings(rest).ok_or_else(|| wrong("invalid settings"))?;
        tubes.push((name.into(), settings));
    }
    Ok(tubes)
}

/// Applies the settings in the file. After an error, the settings of some tubes may already have been applied.
pub fn apply(path: &Path, hub: &Hub) -> Result<(), String> {
    let (mut scratch, mut tubes) = (TurnScratch::default(), read(path)?);
    while !tubes.is_empty() {
        let (count, mut refused) = (tubes.len(), Vec::new());
        for (name, settings) in tubes {
            match set(&name, settings.clone(), hub, &mut scratch) {
                Ok(()) => {}
                // The cycle or chain may include old settings of a tube that comes later in the file, so try again.
                Err(NotSet::Circle) if refused.len() + 1 < count => refused.push((name, settings)),
                Err(why) => {
                    return Err(format!("{}: tube {}: {}", path.display(), name.escape_ascii(), why.reason()));
                }
            }
        }
        tubes = refused;
    }
    Ok(())
}

fn set(name: &[u8], settings: TubeSettings, hub: &Hub, scratch: &mut TurnScratch) -> Result<(), NotSet> {
    let done = hub.turn(scratch, |core, _, now| {
        if core.engine.tube_settings(name).unwrap_or(&TubeSettings::default()) == &settings {
            return Ok(());
        }
        let room = SETTINGS_OVERHEAD + name.len() + settings.dead_length();
        core.refresh_room();
        ensure!(core.engine.claim_log_room(room), NotSet::OverLimit);
        core.engine.set_tube(NOBODY, name, settings, now)
    });
    hub.commit(&mut scratch.out);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_tube_and_its_settings() {
        let file = std::env::temp_dir().join(format!("beanpole-tubes-{}", std::process::id()));
        let read_text = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            read(&file)
        };
        let tubes = read_text("# mail\nmail try:5:10  dead:mail-dead\n\n  \"a b\" max:3\r\nplain\n").expect("tubes");
        let names: Vec<_> = tubes.iter().map(|(name, _)| name.escape_ascii().to_string()).collect();
        assert_eq!(names, ["mail", "a b", "plain"]);
        assert_eq!((tubes[0].1.tries, tubes[1].1.max), (5, 3));
        assert_eq!(tubes[2].1, TubeSettings::default());
        for (wrong, expected) in [
            ("mail max:0", "line 1: invalid settings: mail max:0"),
            ("\n-x max:1", "line 2: invalid tube name: -x max:1"),
        ] {
            let error = read_text(wrong).expect_err(wrong);
            assert!(error.ends_with(expected), "{error}");
        }
        std::fs::remove_file(&file).expect("the file");
        assert!(read(&file).is_err());
    }
}
