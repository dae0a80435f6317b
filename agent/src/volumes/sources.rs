//! From a volume's source to the files in it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use seaway_agent_core::fields::{FieldError, field_value, resource_value};
use seaway_agent_core::payload::{self, DEFAULT_MODE, Payload, Selection};

use super::SetUpError;
use super::tokens::Tokens;
use crate::objects::{ObjectError, Objects};

/// The directory name of a volume that is made of files we write.
pub(super) fn kind(volume: &Volume) -> Option<&'static str> {
    if volume.config_map.is_some() {
        Some("configmap")
    } else if volume.secret.is_some() {
        Some("secret")
    } else if volume.downward_api.is_some() {
        Some("downward-api")
    } else if volume.projected.is_some() {
        Some("projected")
    } else {
        None
    }
}

/// The files that `volume` should have now.
pub(super) async fn payload(
    pod: &Pod,
    volume: &Volume,
    objects: &dyn Objects,
    tokens: &Tokens,
) -> Result<Payload, SetUpError> {
    let source = Source {
        pod,
        volume: &volume.name,
        objects,
        tokens,
    };
    if let Some(config_map) = &volume.config_map {
        let how = How::new(
            config_map.items.as_ref(),
            config_map.default_mode,
            config_map.optional,
        );
        return source.config_map(&config_map.name, how).await;
    }
    if let Some(secret) = &volume.secret {
        let how = How::new(secret.items.as_ref(), secret.default_mode, secret.optional);
        return source
            .secret(secret.secret_name.as_deref().unwrap_or_default(), how)
            .await;
    }
    if let Some(downward) = &volume.downward_api {
        return source.downward(downward.items.as_deref(), downward.default_mode);
    }
    let mut all = Payload::new();
    if let Some(projected) = &volume.projected {
        for projection in projected.sources.iter().flatten() {
            all.extend(
                source
                    .projection(projection, projected.default_mode)
                    .await?,
            );
        }
    }
    Ok(all)
}

struct Source<'a> {
    pod: &'a Pod,
    volume: &'a str,
    objects: &'a dyn Objects,
    tokens: &'a Tokens,
}

/// The choices that every object source has.
struct How<'a> {
    items: Option<&'a [KeyToPath]>,
    default_mode: i32,
    optional: bool,
}

impl<'a> How<'a> {
    fn new(items: Option<&'a Vec<KeyToPath>>, mode: Option<i32>, optional: Option<bool>) -> Self {
        Self {
            items: items.map(Vec::as_slice),
            default_mode: mode.unwrap_or(DEFAULT_MODE),
            optional: optional.unwrap_or_default(),
        }
    }

    fn selection(&self, volume: &'a str) -> Selection<'a> {
        Selection {
            volume,
            items: self.items,
            default_mode: self.default_mode,
            optional: self.optional,
        }
    }
}

impl Source<'_> {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    async fn config_map(&self, name: &str, how: How<'_>) -> Result<Payload, SetUpError> {
        match present(
            self.objects.config_map(self.namespace(), name).await,
            how.optional,
        )? {
            Some(object) => Ok(payload::from_config_map(
                &object,
                how.selection(self.volume),
            )?),
            None => Ok(Payload::new()),
        }
    }

    async fn secret(&self, name: &str, how: How<'_>) -> Result<Payload, SetUpError> {
        match present(
            self.objects.secret(self.namespace(), name).await,
            how.optional,
        )? {
            Some(object) => Ok(payload::from_secret(&object, how.selection(self.volume))?),
            None => Ok(Payload::new()),
        }
    }

    fn downward(
        &self,
        items: Option<&[DownwardAPIVolumeFile]>,
        default_mode: Option<i32>,
    ) -> Result<Payload, SetUpError> {
        let mut files = Payload::new();
        for item in items.unwrap_or_default() {
            let text = self.downward_value(item)?;
            let mode = item.mode.or(default_mode).unwrap_or(DEFAULT_MODE);
            payload::insert(&mut files, self.volume, &item.path, text.as_bytes(), mode)?;
        }
        Ok(files)
    }

    fn downward_value(&self, item: &DownwardAPIVolumeFile) -> Result<String, SetUpError> {
        let named = |field: &str| {
            let field = field.to_owned();
            move |error: FieldError| SetUpError::Field {
                field,
                reason: error.to_string(),
            }
        };
        if let Some(field) = &item.field_ref {
            return field_value(self.pod, &field.field_path).map_err(named(&field.field_path));
        }
        let Some(selector) = &item.resource_field_ref else {
            return Err(SetUpError::Field {
                field: item.path.clone(),
                reason: "neither fieldRef nor resourceFieldRef".into(),
            });
        };
        let allocatable = self
            .objects
            .node()
            .and_then(|node| node.status?.allocatable);
        resource_value(self.pod, None, selector, &allocatable.unwrap_or_default())
            .map_err(named(&selector.resource))
    }

    async fn projection(
        &self,
        projection: &VolumeProjection,
        mode: Option<i32>,
    ) -> Result<Payload, SetUpError> {
        if let Some(source) = &projection.config_map {
            let how = How::new(source.items.as_ref(), mode, source.optional);
            return self.config_map(&source.name, how).await;
        }
        if let Some(source) = &projection.secret {
            let how = How::new(source.items.as_ref(), mode, source.optional);
            return self.secret(&source.name, how).await;
        }
        if let Some(source) = &projection.downward_api {
            return self.downward(source.items.as_deref(), mode);
        }
        match &projection.service_account_token {
            Some(source) => self.token(source, mode).await,
            None => Err(SetUpError::UnsupportedKind),
        }
    }

    /// The API's default lifetime of a projected token is an hour.
    async fn token(
        &self,
        source: &ServiceAccountTokenProjection,
        mode: Option<i32>,
    ) -> Result<Payload, SetUpError> {
        let seconds = source.expiration_seconds.unwrap_or(3600);
        let audience = source
            .audience
            .as_deref()
            .filter(|audience| !audience.is_empty());
        let token = self
            .tokens
            .current(self.pod, audience, seconds, self.objects)
            .await?;
        let (mode, owner) = token_access(self.pod, mode.unwrap_or(DEFAULT_MODE));
        let mut files = Payload::new();
        payload::insert(
            &mut files,
            self.volume,
            &source.path,
            token.as_bytes(),
            mode,
        )?;
        for file in files.values_mut() {
            file.owner = owner;
        }
        Ok(files)
    }
}

/// Absent is nothing for an optional reference and an error for others.
fn present<T>(result: Result<T, ObjectError>, optional: bool) -> Result<Option<T>, ObjectError> {
    match result {
        Err(ObjectError::NotFound { .. }) if optional => Ok(None),
        other => other.map(Some),
    }
}

/// A token is for its user only, as soon as it is known who that is: mode and owner.
fn token_access(pod: &Pod, default_mode: i32) -> (i32, Option<u32>) {
    let Some(spec) = &pod.spec else {
        return (default_mode, None);
    };
    let of_pod = spec.security_context.as_ref();
    if of_pod.is_some_and(|context| context.fs_group.is_some()) {
        return (0o600, None);
    }
    let user_of_pod = of_pod.and_then(|context| context.run_as_user);
    let users: BTreeSet<Option<i64>> = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .map(|container| {
            let own = container
                .security_context
                .as_ref()
                .and_then(|context| context.run_as_user);
            own.or(user_of_pod)
        })
        .collect();
    let mut users = users.into_iter();
    match (users.next(), users.next()) {
        (Some(Some(user)), None) => (0o600, u32::try_from(user).ok()),
        _ => (default_mode, None),
    }
}
