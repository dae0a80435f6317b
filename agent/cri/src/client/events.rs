//! Changes as the runtime tells them.

use super::CriClient;
use crate::CriError;
use crate::v1::{ContainerEventResponse, GetEventsRequest};
use std::path::{Path, PathBuf};
use tonic::{Status, Streaming};

/// Changes of containers as the runtime reports them.
#[derive(Debug)]
pub struct EventStream {
    socket: PathBuf,
    events: Streaming<ContainerEventResponse>,
}

impl EventStream {
    /// The next change; `None` when the runtime ends the stream.
    pub async fn next(&mut self) -> Result<Option<ContainerEventResponse>, CriError> {
        self.events
            .message()
            .await
            .map_err(|status| watch_error(&self.socket, status))
    }
}

fn watch_error(socket: &Path, status: Status) -> CriError {
    CriError::Call {
        operation: "watch",
        object: "container events".into(),
        socket: socket.to_owned(),
        source: status.into(),
    }
}

impl CriClient {
    /// Changes as they happen. containerd 1.6 does not have this
    /// (`is_unimplemented`). The answer's headers may come with the first event
    /// only, so that opening has no deadline: race it against something.
    pub async fn container_events(&self) -> Result<EventStream, CriError> {
        let mut runtime = self.runtime.clone();
        let response = runtime.get_container_events(GetEventsRequest {}).await;
        let response = response.map_err(|status| watch_error(&self.socket, status))?;
        Ok(EventStream {
            socket: self.socket.clone(),
            events: response.into_inner(),
        })
    }
}
