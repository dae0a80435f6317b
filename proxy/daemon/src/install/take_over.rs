//! Foreign CNI confs that the operator names are set aside, and put back at the end.

use std::fs;
use std::path::Path;

use tracing::{info, warn};

use super::files::{self, FileError, failed};

/// No runtime loads a file whose name ends so.
const SET_ASIDE: &str = ".seaway-disabled";

/// Takes the conf `file` out of the runtime's sight; absent is fine. Tells whether it did.
///
/// One that was set aside before is replaced: whoever writes `file` has written it again.
pub(crate) fn set_aside(conf_dir: &Path, file: &str) -> Result<bool, FileError> {
    let path = conf_dir.join(file);
    let aside = conf_dir.join(format!("{file}{SET_ASIDE}"));
    match fs::rename(&path, &aside) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        renamed => {
            renamed.map_err(failed("set aside", &path))?;
            files::sync_folder_of(&path)?;
            Ok(true)
        }
    }
}

/// Gives all confs that are set aside their names back; tells whether there were any.
///
/// One whose name is taken again stays aside, and is told.
pub(crate) fn put_back(conf_dir: &Path) -> Result<bool, FileError> {
    let mut any = false;
    for (name, aside) in files::list(conf_dir)? {
        let Some(file) = name.strip_suffix(SET_ASIDE) else {
            continue;
        };
        let path = conf_dir.join(file);
        if path.symlink_metadata().is_ok() {
            warn!(path = %aside.display(), "A foreign CNI conf stays aside, there is a new one of its name");
            continue;
        }
        fs::rename(&aside, &path).map_err(failed("put back", &path))?;
        info!(path = %path.display(), "Put a foreign CNI conf back");
        any = true;
    }
    Ok(any)
}
