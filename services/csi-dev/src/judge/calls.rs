//! Calls, put together from their lines.
//!
//! Owns: which lines belong to one call, and in which order things happened. Promises: any order of
//! lines and files gives the same calls. Never: judges.

use std::collections::BTreeMap;

use crate::log::{Begin, End, Entry, Line, Source, Start};
use crate::rules::Violation;

/// One call, as far as the logs know it.
#[derive(Clone, Debug)]
pub(super) struct CallRecord<'a> {
    /// Its beginning.
    pub begin: &'a Begin,
    /// Its end, unless it was killed or is still running.
    pub end: Option<&'a End>,
    /// Until when it was certainly in flight.
    pub in_flight_until_us: u64,
    /// Until when its caller certainly waited for it.
    pub waited_until_us: u64,
    lines: Vec<&'a Line>,
}

/// All calls and starts of the logs.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    calls: Vec<CallRecord<'a>>,
    starts: Vec<&'a Start>,
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment<'a> {
    /// The call at this place ended.
    End(usize),
    /// An instance started.
    Start(&'a Start),
    /// The call at this place began.
    Begin(usize),
}

impl<'a> Calls<'a> {
    /// The calls in `lines`.
    pub fn gather(lines: &'a [Line]) -> Self {
        let mut begins: BTreeMap<(&Source, u64), CallRecord<'a>> = BTreeMap::new();
        let mut ends: BTreeMap<(&Source, u64), (&'a End, &'a Line)> = BTreeMap::new();
        let mut gone: BTreeMap<(&Source, u64), (u64, &'a Line)> = BTreeMap::new();
        let mut last_sign: BTreeMap<&Source, u64> = BTreeMap::new();
        let mut starts = Vec::new();
        for line in lines {
            let source = line.entry.source();
            let sign = last_sign.entry(source).or_default();
            *sign = line.entry.time_us().max(*sign);
            match &line.entry {
                Entry::Start(start) => starts.push(start),
                Entry::Begin(begin) => {
                    let record = CallRecord {
                        begin,
                        end: None,
                        in_flight_until_us: 0,
                        waited_until_us: 0,
                        lines: vec![line],
                    };
                    begins.insert((source, begin.seq), record);
                }
                Entry::Gone(left) => _ = gone.insert((source, left.seq), (left.gone_us, line)),
                Entry::End(end) => _ = ends.insert((source, end.seq), (end, line)),
            }
        }
        for (key, record) in &mut begins {
            // A call without an end lasted as long as its process showed signs of life.
            record.in_flight_until_us = last_sign.get(key.0).copied().unwrap_or_default();
            if let Some((end, line)) = ends.get(key) {
                record.end = Some(end);
                record.in_flight_until_us = end.end_us;
                record.lines.push(line);
            }
            record.waited_until_us = record.in_flight_until_us;
            if let Some((gone_us, line)) = gone.get(key) {
                record.waited_until_us = record.waited_until_us.min(*gone_us);
                record.lines.push(line);
            }
        }
        Self { calls: begins.into_values().collect(), starts }
    }

    /// The call at this place.
    pub fn get(&self, place: usize) -> &CallRecord<'a> {
        &self.calls[place]
    }

    /// What happened, in order. At the same time, ends come first: a CO calls after an answer.
    pub fn moments(&self) -> Vec<Moment<'a>> {
        let mut moments: Vec<_> =
            self.starts.iter().map(|start| (start.start_us, 1, Moment::Start(start))).collect();
        for (place, call) in self.calls.iter().enumerate() {
            moments.push((call.begin.begin_us, 2, Moment::Begin(place)));
            if let Some(end) = call.end {
                // No call ends before it began, whatever its clock did.
                let end_us = end.end_us.max(call.begin.begin_us + 1);
                moments.push((end_us, 0, Moment::End(place)));
            }
        }
        moments.sort_by_key(|(time_us, rank, _)| (*time_us, *rank));
        moments.into_iter().map(|(_, _, moment)| moment).collect()
    }
}

impl CallRecord<'_> {
    /// The volume it is about.
    pub fn volume_id(&self) -> Option<&str> {
        self.begin.call.volume_id.as_deref()
    }

    /// The rule that the driver says it broke.
    pub fn noticed(&self) -> Option<&Violation> {
        self.end?.violation.as_ref()
    }

    /// Its lines.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        self.lines.iter().map(|line| (*line).clone())
    }
}
