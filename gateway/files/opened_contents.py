"""Opens the store of contents that the settings name."""

from gateway.callers.vault import Vault
from gateway.clock import Clock
from gateway.configuration.settings import FILES_S3_KEY, Settings
from gateway.errors import Unavailable
from gateway.files.content_folder import ContentFolder
from gateway.files.file_contents import FileContents
from gateway.files.object_store import Bucket, ObjectStore
from gateway.providers.bedrock.signing import AccessKey, read_access_key
from gateway.providers.identities.upstream_identity import UpstreamIdentities
from gateway.runtime.state_changes import StateLog
from gateway.transport import Transport

ROLE = "aws"  # the workload identity where no key is set
INVALID_KEY = "GATEWAY_FILES_S3_KEY must be ACCESS_KEY_ID:SECRET, with :SESSION_TOKEN for temporary credentials."


def open_contents(
    settings: Settings,
    vault: Vault,
    transport: Transport,
    clock: Clock,
    states: StateLog,
    identities: UpstreamIdentities,
) -> FileContents:
    """Return the contents in the folder, or in the bucket, of the settings. Nothing is sent yet."""
    files = settings.files
    objects = None
    if files.s3_bucket_url:
        prefix = files.s3_prefix.strip("/")
        bucket = Bucket(files.s3_bucket_url, files.s3_region, f"{prefix}/" if prefix else "")

        def find_key() -> AccessKey:
            """Return the configured key, else that of the role of the gateway's host. Unavailable, IdentityFailed."""
            secret = settings.secret(FILES_S3_KEY) or identities.find(ROLE, {"region": files.s3_region}).fetch_secret()
            key = read_access_key(secret)
            if key is None:
                raise Unavailable(INVALID_KEY)
            return key

        objects = ObjectStore(bucket, find_key, transport, clock, states)
    return FileContents(ContentFolder(settings.files_dir), objects, vault)


def describe_place(settings: Settings) -> str:
    """Return where the contents of files are, for operators."""
    files = settings.files
    if files.s3_bucket_url:
        return f"the bucket {files.s3_bucket_url}" + (f", prefix {files.s3_prefix}" if files.s3_prefix else "")
    return f"the folder {settings.files_dir.absolute()}"
