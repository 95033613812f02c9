//! Reading the classes that commands about volumes need.

use berth_contract::code::Code;
use berth_contract::message::class::{Classes, ListClasses};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::Namespace;

use crate::failure::Failure;
use crate::session::Session;

/// The most pages of classes that are read: there are no more classes than this.
const PAGES_MAX: usize = berth_domain::limits::CLASSES_MAX;

/// Reads all classes that the namespace may use.
pub async fn read_classes(session: &Session, namespace: &Namespace) -> Result<Classes, Problem> {
    let mut classes_read = Classes { classes: Vec::new(), next: None, unreadable: Vec::new() };
    let take = |page: Classes| {
        classes_read.classes.extend(page.classes);
        // Every page names all unreadable records.
        classes_read.unreadable = page.unreadable;
    };
    session.pages::<verb::ClassList>(namespace, ListClasses::default(), PAGES_MAX, take).await?;
    Ok(classes_read)
}

/// Adds to the failure of an unknown class the names of the existing classes.
pub async fn name_classes(session: &Session, namespace: &Namespace, failure: Failure) -> Failure {
    let Failure::Problem(problem) = failure else { return failure };
    if problem.code != Code::NoSuchClass {
        return Failure::Problem(problem);
    }
    let read = read_classes(session, namespace).await;
    let next = match read.as_ref().map(|read| read.classes.as_slice()) {
        Err(_) => return Failure::Problem(problem),
        Ok([]) => "define one with `berth class init` and `berth class create FILE`".to_owned(),
        Ok(classes) => {
            let ids: Vec<&str> = classes.iter().map(|class| class.id.as_str()).collect();
            format!("use one of: {}", ids.join(", "))
        }
    };
    Failure::Problem(Box::new(problem.next(next)))
}
