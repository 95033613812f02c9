//! The level of records, as it is stored, asked for and shown.

use berth_contract::level::{Level, LevelHolder};
use berth_contract::message::level::{HoldLevel, LevelStatus};

use crate::messages::{reply, request};
use crate::records::record_is;
use crate::sample;

#[test]
fn the_level_of_records() {
    request("request-level-hold", &HoldLevel { hold: true });
    let (held_by, held_since) = (Some("user.anna".to_owned()), Some(sample::at(0)));
    reply("reply-level-hold", &LevelStatus { level: 1, newest: 2, held_by, held_since });
    let held = Some(LevelHolder { by: "user.anna".to_owned(), since: sample::at(0) });
    record_is("record-level", Level { level: 1, held });
}
