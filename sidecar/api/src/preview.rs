//! Previews of links in messengers.

use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};
use vocabulary::Preview;
use vocabulary::preview::{MAX_DESCRIPTION_LENGTH, MAX_IMAGE_LENGTH, MAX_TITLE_LENGTH, is_text};

use super::faults::Faults;
use super::kinds::{Kind, Shape, expect, object, text, texts};
use super::members::{Members, Optional, Required, Usage, members, request};
use super::schema::of;

members! {
    /// The parts of a preview.
    pub struct PreviewMembers {
        /// Title: 1 to 200 characters.
        title: Required<PreviewText<MAX_TITLE_LENGTH>> = "title",
        /// Description: 1 to 500 characters.
        description: Optional<PreviewText<MAX_DESCRIPTION_LENGTH>> = "description",
        /// Image: an https URL of at most 2048 bytes, with the requirements for targets.
        image: Optional<ImageUrl> = "image",
    }
}

request! {
    /// The preview of a link in messengers.
    pub NewPreview: New, required ["title"], of PreviewMembers
}

/// A preview whose image is not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenPreview {
    /// The title.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The URL of the image, as it was given.
    pub image: Option<String>,
}

/// A preview.
pub enum PreviewOf {}

impl Kind for PreviewOf {
    type Value = GivenPreview;
    const SHAPE: Shape = Shape::Json;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<GivenPreview> {
        let members = object(value, faults)?;
        faults.within(members, |fields| {
            let given = PreviewMembers::read(fields, Usage::New);
            let title = fields.required("title", given.title);
            if !fields.is_faultless() {
                return None;
            }
            Some(GivenPreview {
                title: title?,
                description: given.description.flatten(),
                image: given.image.flatten(),
            })
        })
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        of::<NewPreview>(generator)
    }
}

/// A text of 1 to so many characters, none of them a control character.
pub enum PreviewText<const MOST: usize> {}

impl<const MOST: usize> Kind for PreviewText<MOST> {
    type Value = String;
    const SHAPE: Shape = Shape::Text;
    const NOT_NULL: &'static str = "must be a string";

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        let given = text(value, faults)?;
        let is_fine = is_text(&given, MOST) && !given.trim().is_empty();
        let must = format_args!(
            "1 to {MOST} characters, not only spaces, and without line breaks and other control characters"
        );
        expect(is_fine.then_some(given), faults, must)
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MOST })
    }
}

texts! {
    /// The URL of an image.
    ImageUrl: |_| json!({
        "type": "string",
        "maxLength": MAX_IMAGE_LENGTH,
        "pattern": "^[Hh][Tt][Tt][Pp][Ss]:",
        "examples": ["https://www.example.com/spring.png"],
    });
}

/// A preview in an answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Preview")]
pub struct PreviewBody {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    image: Option<String>,
}

impl PreviewBody {
    /// Describes a preview.
    pub fn of(preview: Preview<'_>) -> Self {
        let part = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            title: preview.title.to_owned(),
            description: part(preview.description),
            image: part(preview.image),
        }
    }
}
