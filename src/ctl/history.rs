//! `history`: the jobs that ended or were buried last.
//!
//! Owns the columns. Times are in UTC.

use super::call::{tube, Call};
use super::link::Link;
use super::opts::{FAILED, JSON, OF_TUBE, SHOWN};
use super::out::{excerpt, Out};
use super::problem::{Problem, DONE};
use super::schedules::date;
use super::yaml;
use crate::shared::json;

const HEADS: [&str; 9] = ["ended", "id", "tube", "verdict", "waited", "ran", "tries", "reason", "body"];

/// The maximum of what one reply lists.
const PAGE: usize = 1000;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let of_tube = call.value(&OF_TUBE).map(|name| tube(&name)).transpose()?;
    let most = call.number(&SHOWN, 0, u64::MAX)?.unwrap_or(100);
    let mut link = Link::open(call)?;
    let (mut rows, mut count, mut below) = (Vec::new(), 0, u64::MAX);
    while below > 0 {
        let reply = link.expect(&format!("list-history {below} {PAGE}"), "OK")?;
        let page = yaml::objects(&reply.body);
        below = page.last().map_or(0, |last| last.number("number"));
        for figures in page {
            let is_meant = of_tube.as_ref().is_none_or(|tube| figures.text("tube") == tube);
            let is_failure = matches!(figures.text("verdict"), "failed" | "buried");
            if !is_meant || call.has(&FAILED) && !is_failure {
                continue;
            }
            if most > 0 && count == most {
                below = 0;
                break;
            }
            count += 1;
            if call.has(&JSON) {
                out.line(&json::object(|json| figures.write(json)))?;
                continue;
            }
            let text = |key: &str| figures.text(key).to_owned();
            let mut row =
                vec![date(figures.text("ended").split('.').next().and_then(|text| text.parse().ok()).unwrap_or(0))];
            row.extend(["id", "tube", "verdict", "waited", "ran", "tries"].map(text));
            row.extend(["reason", "body"].map(|key| excerpt(figures.text(key).as_bytes())));
            rows.push(row);
        }
    }
    if !call.has(&JSON) && !rows.is_empty() {
        out.table(&HEADS, &rows)?;
    }
    Ok(DONE)
}
