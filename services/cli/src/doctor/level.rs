//! The level of records: what is in force, who holds it, and which replicas keep it from rising.

use berth_contract::level::{HELD_BY, IN_FORCE, OlderReplica, READS};
use berth_contract::record::SCHEMA;
use berth_contract::service::{CLAIM, READERS};

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};
use super::replica::Replica;

pub fn examine(facts: &SystemFacts) -> Examined {
    let readers = || {
        let readers = READERS.iter().filter_map(|service| {
            let replicas = facts.replicas.get(service.name)?.as_ref().ok()?;
            Some(replicas.iter().map(|replica| (service.name, replica)))
        });
        readers.flatten()
    };
    let number = |one: &Replica, fact: &str| one.metadata.get(fact)?.parse::<u32>().ok();
    let claims = || readers().filter(|(service, _)| *service == CLAIM.name);
    if claims().next().is_none() {
        return Examined::new(format!("not known: no {} answers", CLAIM.name), Vec::new());
    }
    let in_force = claims().filter_map(|(_, one)| number(one, IN_FORCE)).max().unwrap_or(SCHEMA);
    let newest = readers().filter_map(|(_, one)| number(one, READS)).max().unwrap_or(SCHEMA);
    let holder = claims().find_map(|(_, one)| one.metadata.get(HELD_BY));
    let mut findings = Vec::new();
    for (service, one) in readers() {
        let Replica { id, version, metadata, .. } = one;
        let Some(older) = OlderReplica::find(service, id, version, metadata, newest) else {
            continue;
        };
        let sentence = if older.reads < in_force {
            format!("it cannot read records of schema {in_force}, which may be there")
        } else {
            format!(
                "it keeps the level of records at {in_force}: what needs schema {newest} is refused"
            )
        };
        findings.push(
            DoctorFinding::warning(format!("{service} {}", older.name), sentence)
                .shown_by(older.to_string())
                .next("nats micro ls   # upgrade what is older, one host at a time"),
        );
    }
    if let Some(by) = holder.filter(|_| in_force < newest && findings.is_empty()) {
        let sentence = format!("held at {in_force}, and every replica reads schema {newest}");
        let next = "berth level release   # once nobody wants to go back to the last version";
        findings
            .push(DoctorFinding::warning("the level of records", sentence).shown_by(by).next(next));
    }
    let holder = holder.map(|by| format!("; held by {by}")).unwrap_or_default();
    Examined::new(format!("{in_force} of {newest}{holder}"), findings)
}

#[cfg(test)]
mod tests {
    use berth_contract::service::VOLUMEWATCHER;
    use serde_json::{Value, json};

    use super::super::Verdict::Warning;
    use super::super::tests::{only, replica, well};
    use super::*;

    fn of(worker: &str, facts: &Value) -> Replica {
        let mut metadata = json!({"worker": worker, "clock_skew_ms": "3"});
        metadata.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
        replica(json!({"metadata": metadata}))
    }

    /// The claim service is new and at level 1; the watcher has these facts.
    fn mixed(claim: &Value, watcher: &Value) -> SystemFacts {
        let mut facts = well();
        facts.replicas.insert(CLAIM.name, Ok(vec![of("claim/a/1", claim)]));
        facts.replicas.insert(VOLUMEWATCHER.name, Ok(vec![of("watcher/b/2", watcher)]));
        facts
    }

    #[test]
    fn each_replica_that_keeps_the_level_from_rising_is_named() {
        let claim_service = json!({"reads_schema": "2", "level": "1"});
        let facts = mixed(&claim_service, &json!({}));
        let (check, verdict, what) = only(&facts);
        assert_eq!((check, verdict), ("level", Warning));
        assert!(what.contains("keeps the level of records at 1"), "{what}");
        let examined = examine(&facts);
        assert_eq!(examined.findings[0].place, "berth-volumewatcher watcher/b/2");
        assert_eq!(examined.summary, "1 of 2");
        // All replicas are new: the level rises by itself.
        assert!(examine(&mixed(&claim_service, &json!({"reads_schema": "2"}))).findings.is_empty());
    }

    #[test]
    fn a_replica_that_came_back_after_the_level_rose_is_named() {
        let facts = mixed(&json!({"reads_schema": "2", "level": "2"}), &json!({}));
        let (check, _, what) = only(&facts);
        assert!(check == "level" && what.contains("cannot read records of schema 2"), "{what}");
    }

    #[test]
    fn a_held_level_is_a_finding_once_every_replica_reads_the_newest_schema() {
        let new = json!({"reads_schema": "2"});
        let held =
            |level: &str| json!({"reads_schema": "2", "level": level, "level_held_by": "ops"});
        let (_, verdict, what) = only(&mixed(&held("1"), &new));
        assert!(verdict == Warning && what.starts_with("held at 1"), "{what}");
        let before = examine(&mixed(&held("2"), &new));
        assert_eq!((before.summary.as_str(), before.findings.len()), ("2 of 2; held by ops", 0));
        let mut alone = well();
        alone.replicas.insert(CLAIM.name, Ok(Vec::new()));
        assert!(examine(&alone).summary.starts_with("not known"));
    }
}
