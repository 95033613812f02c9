//! `berth class …`, `berth plugin capacity`

use berth_contract::message::class::{
    ClassStatus, Classes, DeleteClass, ListClasses, PutClass, WrittenClass,
};
use berth_contract::message::storage::{ListCapacities, SentSecrets};
use berth_contract::verb;
use berth_service::clock;
use std::time::Duration;

use super::listing::check_sort;
use super::new_volume::ArgFaults;
use super::spec::{self, Spec, seal_secrets};
use crate::args::{
    ClassCreate, ClassDelete, ClassInit, ClassList, ClassShow, Global, PluginCapacity,
};
use crate::classes::{name_classes, read_classes};
use crate::failure::Failure;
use crate::session::Session;
use crate::show;

/// How long a plugin may take to say how much room it has, at all its places.
const CAPACITY_PATIENCE: Duration = Duration::from_secs(30);

/// Writes the example.
pub fn init(args: &ClassInit, json: bool) -> Result<(), Failure> {
    spec::write_example::<PutClass>(args.file.as_deref(), json)
}

/// Defines a class. While the document has a fault, no connection is made.
pub async fn create(args: &ClassCreate, global: &Global) -> Result<(), Failure> {
    let spec = Spec::<PutClass>::load(&args.file)?;
    let session = Session::open(global).await?;
    let mut request = spec.request.clone();
    if let Some(SentSecrets::Given(given)) = request.secrets.take() {
        let sealed = seal_secrets(&session, &request.id.to_secrets_key(), given).await?;
        request.secrets = Some(SentSecrets::Given(sealed));
    }
    let reply = session.ask_service::<verb::ClassPut>(&(), &request).await;
    let written = reply.map_err(|failure| spec.explain(failure))?;
    session.output.reply(&written, |WrittenClass { id, changed, .. }| match changed {
        true => format!("class {id} is defined"),
        false => format!("class {id} was defined so already"),
    });
    Ok(())
}

/// Lists the classes that the namespace may use.
pub async fn list(args: &ClassList, session: &Session) -> Result<(), Failure> {
    let sort = args.sort.as_deref();
    check_sort::<ClassStatus>(sort)?;
    let classes = read_classes(session, &session.namespace).await?;
    session.output.reply(&classes, |classes| show::list(&classes.classes, sort, clock::now()));
    Ok(())
}

/// Shows one class.
pub async fn status(args: &ClassShow, session: &Session) -> Result<(), Failure> {
    let body = ListClasses { id: Some(args.id.clone()), ..ListClasses::default() };
    let namespace = &session.namespace;
    let reply = session.ask_service::<verb::ClassList>(namespace, &body).await;
    let Classes { classes, unreadable, .. } = match reply {
        Ok(classes) => classes,
        Err(failure) => return Err(name_classes(session, namespace, failure).await),
    };
    match (classes.first(), unreadable.first()) {
        (Some(class), _) => session.output.reply(class, show::class),
        (None, Some(record)) => return Err(record.problem().into()),
        (None, None) => {}
    }
    Ok(())
}

/// Removes a class.
pub async fn delete(args: &ClassDelete, session: &Session) -> Result<(), Failure> {
    let body = DeleteClass { id: args.id.clone() };
    let deleted = session.ask_service::<verb::ClassDelete>(&(), &body).await?;
    session.output.reply(&deleted, |deleted| format!("class {} is deleted", deleted.id));
    Ok(())
}

/// Shows how much room a plugin has.
pub async fn capacity(args: &PluginCapacity, global: &Global) -> Result<(), Failure> {
    let mut faults = ArgFaults::default();
    let topology = args.topology.as_ref().map(|text| faults.place("--topology", text));
    faults.check("plugin capacity")?;
    let session = Session::open(global).await?;
    let body = ListCapacities { plugin: args.id.clone(), class: args.class.clone(), topology };
    let patience = session.patience(CAPACITY_PATIENCE);
    let reply = session.pursue::<verb::PluginCapacity>(&(), &body, patience).await;
    let capacities = match reply {
        Ok(capacities) => capacities,
        Err(failure) => return Err(name_classes(&session, &session.namespace, failure).await),
    };
    session.output.reply(&capacities, show::capacities);
    Ok(())
}
