//! Events, one line each.

use std::time::Duration;

use berth_contract::event::Event;
use berth_contract::message::history::EventBody;

use super::time::{Zone, took};
use crate::table::{padded, plain};

/// `2026-11-21 20:00:53.425  claim.failed  default/data web-1 on n1  200 ms  why  0af76519`
///
/// Columns have fixed widths, because lines are printed one by one as events come.
pub fn event(body: &EventBody, zone: &Zone) -> String {
    let event = body.event();
    let took = event.took_us.map(|us| took(Duration::from_micros(us))).unwrap_or_default();
    let trace = event.trace.as_deref().unwrap_or_default();
    let trace: String = trace.chars().take(TRACE_DIGITS).collect();
    format!(
        "{}  {:<19}  {}  {:>7}  {}",
        zone.date_and_time(event.at),
        plain(body.name()),
        padded(&plain(&describe_subject(event)), 45),
        plain(&took),
        [detail(event), trace].map(|text| plain(&text)).join("  "),
    )
}

/// Number of digits of a trace's id, enough to recognize it; `--json` has all digits.
const TRACE_DIGITS: usize = 8;

/// `default/data web-1 on n1 by ebs.csi.aws.com`, `default/data@monday by ebs.csi.aws.com`
fn describe_subject(event: &Event) -> String {
    let mut words = Vec::new();
    let namespace = event.namespace.as_ref().map(|namespace| format!("{namespace}/"));
    let mut namespace = namespace.unwrap_or_default();
    if let Some(volume) = &event.volume {
        let snapshot = event.snapshot.as_ref().map(|snapshot| format!("@{snapshot}"));
        let name = std::mem::take(&mut namespace) + volume.as_str();
        words.push(name + &snapshot.unwrap_or_default());
    }
    if let Some(alloc) = &event.alloc {
        words.push(namespace + alloc.as_str());
    }
    words.extend(event.node.as_ref().map(|node| format!("on {node}")));
    words.extend(event.plugin.as_ref().map(|plugin| format!("by {plugin}")));
    words.join(" ")
}

/// The event's detail, and the plugin's calls.
fn detail(event: &Event) -> String {
    let calls = event.calls.iter().map(|call| {
        let failed = if call.code == "OK" { String::new() } else { format!(" {}", call.code) };
        format!("{} {}{failed}", call.rpc, took(Duration::from_micros(call.took_us)))
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    if let (Some(step), Some(code)) = (&event.step, event.code) {
        return format!("{step}: {} ({code})", event.detail.as_deref().unwrap_or_default());
    }
    match (event.detail.as_deref().unwrap_or_default(), calls.as_str()) {
        (detail, "") => detail.to_owned(),
        ("", calls) => calls.to_owned(),
        (detail, calls) => format!("{detail} ({calls})"),
    }
}
