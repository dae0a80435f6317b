//! Images.

use super::CriClient;
use super::QUERY;
use crate::CriError;
use crate::v1::{
    Image, ImageSpec, ImageStatusRequest, ListImagesRequest, PodSandboxConfig, PullImageRequest,
};
use std::time::Duration;

/// A pull without an answer for this long is given up; kubelet's limit is
/// progress-based and lives in the runtime (`image_pull_progress_timeout`).
const PULL: Duration = Duration::from_hours(1);

impl CriClient {
    /// The image, if it is on the node.
    pub async fn image_status(&self, image: &str) -> Result<Option<Image>, CriError> {
        let request = ImageStatusRequest {
            image: Some(spec(image)),
        };
        let mut images = self.images.clone();
        let call = images.image_status(request);
        Ok(self
            .call("ask status of image", image, QUERY, call)
            .await?
            .image)
    }

    /// Pulls an image; the reference that containers are to be created with.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<crate::v1::AuthConfig>,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String, CriError> {
        let request = PullImageRequest {
            image: Some(spec(image)),
            auth,
            sandbox_config: Some(sandbox_config),
        };
        let mut images = self.images.clone();
        let call = images.pull_image(request);
        Ok(self.call("pull image", image, PULL, call).await?.image_ref)
    }

    /// All images on the node.
    pub async fn list_images(&self) -> Result<Vec<Image>, CriError> {
        let mut images = self.images.clone();
        let call = images.list_images(ListImagesRequest { filter: None });
        Ok(self.call("list", "images", QUERY, call).await?.images)
    }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        user_specified_image: String::new(),
    }
}
