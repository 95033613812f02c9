//! `class.put`, `class.delete` and `class.list` (A15).
//!
//! **Owns** the key of each class, in the bucket of volumes.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::key::{self, VolumeEntry};
use berth_contract::message::class::{
    ClassStatus, Classes, DeleteClass, DeletedClass, ListClasses, PutClass, WrittenClass,
};
use berth_contract::message::query::UnreadableRecord;
use berth_contract::message::secret::Secrets;
use berth_contract::message::storage::SentSecrets;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::class::{Class, ClassUse};
use berth_domain::limits::{CLASSES_MAX, UNREADABLE_MAX};
use berth_domain::{ClassId, Namespace, SecretsId, VolumeKey};
use berth_service::deadline;
use berth_service::page::{Room, after, page};
use berth_service::projection::Volumes;
use berth_service::record_table::retry_lost_races;
use tokio::time::Instant;

use crate::store::secrets::open_given;
use crate::store::state::State;

/// Volumes of a class that a refusal names, at most.
const NAMED_MAX: usize = 5;

/// Stores a class. A changed class changes no volume.
pub async fn put_class(
    state: &State,
    request: PutClass,
    trace: TraceContext,
    deadline: Instant,
) -> Result<WrittenClass, Problem> {
    let id = &request.id;
    let (class_key, secrets_key) = (key::class(id), id.to_secrets_key());
    let sent = match request.secrets.clone() {
        None => None,
        Some(SentSecrets::Given(sent)) => {
            let opened = open_given(state, &secrets_key, sent);
            Some(opened?)
        }
    };
    let may_store = state.volumes.mirror.read(|volumes| {
        volumes.classes().get(id).is_some() || volumes.classes().len() < CLASSES_MAX
    });
    if !may_store {
        let message = format!("there are {CLASSES_MAX} classes, as many as there may be");
        return Err(Problem::new(Code::Overloaded, message));
    }
    retry_lost_races(|| async {
        let (revision, before) = state.volumes.read::<Class>(&class_key).await?;
        let current = before.as_ref().and_then(|class| class.secrets.clone());
        let secrets =
            stored_secrets(state, &secrets_key, current.clone(), sent.as_ref(), trace).await?;
        let class = request.to_class(secrets.clone());
        if before.as_ref() == Some(&class) {
            return Ok(WrittenClass { id: id.clone(), changed: false, index: revision });
        }
        deadline::check(deadline)?;
        let index = state.volumes.put(&class_key, &class, revision, trace).await?;
        if let Some(unused) = current.filter(|current| Some(current) != secrets.as_ref()) {
            state.vault.remove(&secrets_key, &unused, trace).await;
        }
        Ok(WrittenClass { id: id.clone(), changed: true, index })
    })
    .await
}

/// The id of the class's secrets: the current ones, or new ones.
async fn stored_secrets(
    state: &State,
    key: &VolumeKey,
    current: Option<SecretsId>,
    sent: Option<&Secrets>,
    trace: TraceContext,
) -> Result<Option<SecretsId>, Problem> {
    let Some(sent) = sent else { return Ok(current) };
    if sent.0.is_empty() {
        return Ok(None);
    }
    if let Some(current) = &current
        && state.vault.has(key, current, sent).await?
    {
        return Ok(Some(current.clone()));
    }
    state.vault.store(key, sent.clone(), trace).await.map(Some)
}

/// Deletes a class that no volume has.
pub async fn delete_class(
    state: &State,
    request: DeleteClass,
    trace: TraceContext,
    deadline: Instant,
) -> Result<DeletedClass, Problem> {
    let id = &request.id;
    let class_key = key::class(id);
    let fail = |error: crate::store::transact::TransactError| {
        let why = berth_service::process::chain(&error);
        Problem::new(Code::BusUnavailable, why).retryable()
    };
    retry_lost_races(|| async {
        let (revision, before) = state.volumes.read::<Class>(&class_key).await?;
        let Some(before) = before else {
            let message = format!("no class {id}");
            return Err(Problem::new(Code::NoSuchClass, message).into());
        };
        state.catch_up_with_all().await.map_err(fail)?;
        if let Some(message) = state.volumes.mirror.read(|volumes| describe_users(volumes, id)) {
            return Err(Problem::new(Code::ClassInUse, message).into());
        }
        deadline::check(deadline)?;
        state.volumes.delete(&class_key, revision, trace).await?;
        if let Some(secrets) = &before.secrets {
            state.vault.remove(&id.to_secrets_key(), secrets, trace).await;
        }
        Ok(DeletedClass { id: id.clone() })
    })
    .await
}

/// The volumes of the class, in words; none if it has none.
fn describe_users(volumes: &Volumes, id: &ClassId) -> Option<String> {
    if !volumes.index().class_uses(&Namespace::wildcard()).contains_key(id) {
        return None;
    }
    let of_class = volumes.iter().filter(|(_, subtree)| {
        let spec = subtree.volume.spec.as_ref();
        let class = spec.and_then(|spec| spec.provision()?.class.as_ref());
        class == Some(id)
    });
    let users: Vec<&VolumeKey> = of_class.map(|(key, _)| key).collect();
    let named: Vec<String> = users.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = users.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let s = if users.len() == 1 { "" } else { "s" };
    Some(format!("class {id} has {} volume{s}: {}{more}", users.len(), named.join(", ")))
}

/// The class at which a page of the list ended.
fn parse_token(token: &str) -> Option<ClassId> {
    match key::parse_volume(token)? {
        VolumeEntry::Class(id) => Some(id),
        _ => None,
    }
}

/// The classes that a namespace may use.
pub async fn list_classes(
    state: &State,
    namespace: &Namespace,
    query: ListClasses,
) -> Result<Classes, Problem> {
    let after = after(&query.page, parse_token)?;
    let caught_up = state.catch_up_with_all().await;
    caught_up.map_err(|error| {
        let why = berth_service::process::chain(&error);
        Problem::new(Code::BusUnavailable, why).retryable()
    })?;
    let page =
        state.volumes.mirror.read(|volumes| list_page(volumes, namespace, &query, after.as_ref()));
    match &query.id {
        Some(id) if page.classes.is_empty() && page.unreadable.is_empty() => {
            Err(Problem::new(Code::NoSuchClass, format!("no class {id}")))
        }
        _ => Ok(page),
    }
}

fn list_page(
    volumes: &Volumes,
    namespace: &Namespace,
    query: &ListClasses,
    after: Option<&ClassId>,
) -> Classes {
    let is_named = |id: &ClassId| {
        query.id.as_ref().is_none_or(|named| named == id) && id.as_str().starts_with(&query.prefix)
    };
    let matching = || volumes.classes().iter().filter(|(id, _)| is_named(id));
    // An unreadable class does not show which namespaces may use it.
    let shows_unreadable = namespace.is_wildcard() || query.id.is_some();
    let unreadable = matching().filter_map(|(_, stored)| stored.class.as_ref().err());
    let unreadable = unreadable.filter(|_| shows_unreadable).take(UNREADABLE_MAX).cloned();
    let unreadable: Vec<UnreadableRecord> = unreadable.collect();
    let class_uses = volumes.index().class_uses(namespace);
    let room = Room::for_page(&query.page).beside(&unreadable);
    let listed = matching()
        .filter_map(|(id, stored)| Some((id, stored.revision, stored.class.as_ref().ok()?)))
        .filter(|(_, _, class)| namespace.is_wildcard() || class.is_open_to(namespace))
        .filter(|(id, ..)| after.is_none_or(|after| *id > after))
        .take(room.keys());
    let listed: BTreeMap<&ClassId, (u64, &Class)> =
        listed.map(|(id, revision, class)| (id, (revision, &**class))).collect();
    let show = |id: &&ClassId| {
        let (index, class) = listed.get(*id)?;
        let used = class_uses.get(*id).copied().unwrap_or_default();
        Some(show_class(id, class, namespace, used, *index))
    };
    let page = page(listed.keys().copied(), room, show, |id| key::class(id));
    let classes = page.entries.into_iter().flatten().collect();
    Classes { classes, next: page.next, unreadable }
}

fn show_class(
    id: &ClassId,
    class: &Class,
    namespace: &Namespace,
    used: ClassUse,
    index: u64,
) -> ClassStatus {
    // Only a caller that may see all namespaces learns the names of the others.
    let may_know = |other: &&Namespace| namespace.is_wildcard() || *other == namespace;
    let namespaces = class.namespaces.iter().filter(may_know).cloned().collect();
    let (mount, has_secrets) = (class.mount.struck_out(), class.secrets.is_some());
    ClassStatus {
        id: id.clone(),
        class: Class { mount, namespaces, secrets: None, ..class.clone() },
        has_secrets,
        used,
        index,
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_contract::record;
    use berth_domain::volume::VolumeSpec;
    use serde_json::{Value, json};

    use super::*;

    fn put_class(volumes: &mut Volumes, id: &str, fields: &Value) {
        let mut class = json!({"plugin": "p", "capabilities": []});
        class.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let class: Class = serde_json::from_value(class).unwrap();
        let body = record::write(class, None).unwrap();
        volumes.put(&key::class(&ClassId::new(id).unwrap()), 7, &body);
    }

    fn put_volume(volumes: &mut Volumes, namespace: &str, id: &str, class: &str, bytes: u64) {
        let spec = json!({
            "plugin": "p", "capabilities": [], "capacity_bytes": bytes,
            "storage": {"provision": {
                "name": id, "class": class, "requested": "2026-11-21T20:00:00.000Z",
            }},
        });
        let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
        let key = VolumeKey::new(namespace.parse().unwrap(), id.parse().unwrap());
        volumes.put(&key::spec(&key), 8, &record::write_spec(&spec, None).unwrap());
    }

    fn volumes() -> Volumes {
        let mut volumes = Volumes::default();
        put_class(&mut volumes, "all", &json!({}));
        put_class(&mut volumes, "both", &json!({"namespaces": ["team-a", "team-b"]}));
        put_class(&mut volumes, "theirs", &json!({"namespaces": ["team-b"]}));
        volumes.put("=class.new", 9, br#"{"schema":99}"#);
        put_volume(&mut volumes, "team-a", "one", "all", 10);
        put_volume(&mut volumes, "team-b", "one", "all", 20);
        put_volume(&mut volumes, "team-b", "two", "all", 30);
        volumes
    }

    fn list(namespace: &str, query: &Value) -> Classes {
        let query: ListClasses = serde_json::from_value(query.clone()).unwrap();
        let after = query.page.after.as_deref().and_then(parse_token);
        list_page(&volumes(), &namespace.parse().unwrap(), &query, after.as_ref())
    }

    fn ids(classes: &Classes) -> Vec<&str> {
        classes.classes.iter().map(|class| class.id.as_str()).collect()
    }

    #[test]
    fn a_namespace_is_told_only_its_own_classes_and_its_own_name() {
        let listed = list("team-a", &json!({}));
        assert_eq!(ids(&listed), ["all", "both"]);
        assert_eq!(listed.classes[1].class.namespaces, ["team-a".parse().unwrap()]);
        assert_eq!(listed.unreadable, [], "an unreadable class may be of others");
        let used = listed.classes[0].used;
        assert_eq!((used.volumes, used.bytes), (1, 10));
        assert_eq!(list("team-a", &json!({"id": "new"})).unreadable.len(), 1);
    }

    #[test]
    fn all_namespaces_are_told_every_class_and_the_sum_of_its_use() {
        let listed = list("*", &json!({}));
        assert_eq!(ids(&listed), ["all", "both", "theirs"]);
        assert_eq!(listed.classes[1].class.namespaces.len(), 2);
        assert_eq!(listed.unreadable.len(), 1);
        let used = listed.classes[0].used;
        assert_eq!((used.volumes, used.bytes), (3, 60));
    }

    #[test]
    fn a_list_of_classes_may_be_of_those_whose_ids_begin_with_a_text() {
        assert_eq!(ids(&list("*", &json!({"prefix": "b"}))), ["both"]);
        assert_eq!(ids(&list("team-a", &json!({"prefix": "th"}))), [""; 0]);
        assert_eq!(list("*", &json!({"prefix": "n"})).unreadable.len(), 1);
        assert_eq!(list("*", &json!({"prefix": "b"})).unreadable, []);
    }

    #[test]
    fn a_list_of_classes_comes_in_pages() {
        let first = list("*", &json!({"limit": 2}));
        assert_eq!(ids(&first), ["all", "both"]);
        let rest = list("*", &json!({"limit": 2, "after": first.next.unwrap()}));
        assert_eq!((ids(&rest), rest.next.as_deref()), (vec!["theirs"], None));
    }
}
