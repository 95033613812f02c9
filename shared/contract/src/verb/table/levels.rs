//! The level of records.

use crate::message::level;

verbs! {
    /// Hold the level of records, so that no newer schema is written, or let it go: hold
    LevelHold {
        step: "level.hold", endpoint: "level-hold",
        subject: "berth.v1.level.hold", to: (),
        service: CLAIM, senders: [OPERATOR], effect: BriefChange,
        request: level::HoldLevel, reply: level::LevelStatus,
        errors: [],
    }
}
