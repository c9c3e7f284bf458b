"""The choices that settings offer. Members are lower case because OmegaConf reads an enum by its member's name."""

from enum import StrEnum


class FieldClass(StrEnum):
    """What a field's value means for the identity of a run."""

    IDENTITY = "identity"
    RECORD = "record"
    FREE = "free"


class DataName(StrEnum):
    """Data sets; what each is, and where it comes from, is in docs/data.md."""

    digits = "digits"
    mnist1d = "mnist1d"
    fashion_mnist = "fashion_mnist"
    mnist = "mnist"
    cifar10 = "cifar10"
    cifar100 = "cifar100"
    svhn = "svhn"
    image_folder = "image_folder"
    imagenet = "imagenet"
    synthetic = "synthetic"


class Augment(StrEnum):
    """What a training image goes through: nothing; pad and crop at random; and a mirror with chance 1/2."""

    none = "none"
    crop = "crop"
    crop_flip = "crop_flip"


class Residence(StrEnum):
    """Where pixels live: on the device if they fit and else in a memory map (auto), or one of the two."""

    auto = "auto"
    device = "device"
    stream = "stream"


class Family(StrEnum):
    """Network families; the depth rule of each is in models/families.py."""

    mlp = "mlp"
    cnn = "cnn"
    cifar_resnet = "cifar_resnet"
    imagenet_resnet = "imagenet_resnet"
    vit = "vit"
    transformer = "transformer"


class Placement(StrEnum):
    """Where norm and activation stand in a block; both arms of a pair share it.

    post_activation  y = act(h + F), F = L·norm·act … L·norm           He 2015
    pre_activation   y = h + F, F = norm·act·L …, final norm and act    He 2016
    pre_norm         y = h + F(norm(x)), final norm                     Pre-LN
    post_norm        y = norm(h + F(x))                                 Post-LN
    sandwich         y = h + norm(F(norm(x))), final norm               Peri-LN
    none             y = h + F(x), no norm and no activation around F; the stem keeps its norm
    """

    post_activation = "post_activation"
    pre_activation = "pre_activation"
    pre_norm = "pre_norm"
    post_norm = "post_norm"
    sandwich = "sandwich"
    none = "none"


class Norm(StrEnum):
    """Normalisation layers: over the batch, over the features of a sample (or token), or none."""

    batch = "batch"
    layer = "layer"
    none = "none"


class Activation(StrEnum):
    """Nonlinearities; leaky_relu has slope 0.01, gelu is the exact one."""

    relu = "relu"
    leaky_relu = "leaky_relu"
    tanh = "tanh"
    gelu = "gelu"


class Init(StrEnum):
    """Initial weights; the formulas are in models/init.py."""

    he = "he"
    xavier = "xavier"
    orthogonal = "orthogonal"
    delta_orthogonal = "delta_orthogonal"


class Stages(StrEnum):
    """How blocks are spread over the three stages of cifar_resnet: 6n + 2 as in He 2015, or as evenly as they go."""

    thirds = "thirds"
    even = "even"


class Boundary(StrEnum):
    """The shortcut where width or resolution changes: option A, average pooling, or option B (1x1 convolution)."""

    zero_pad = "zero_pad"
    pool = "pool"
    projection = "projection"


class Shortcut(StrEnum):
    """The path around a branch. ``none`` is the plain arm: nothing is added."""

    none = "none"
    identity = "identity"
    scaled = "scaled"
    projection = "projection"
    dropout = "dropout"


def shortcut_of(text: str) -> "Shortcut | str":
    """A shortcut by its name; ``package.module:Class``, or what is neither, stays as it is."""
    return Shortcut(text) if text in set(Shortcut) else text


class Scale(StrEnum):
    """What multiplies the branch before it is added."""

    none = "none"
    fixed = "fixed"
    depth = "depth"
    learned = "learned"
    per_channel = "per_channel"


class Gate(StrEnum):
    """g(x) = σ(Wx + b): none; (1−g)h + gF; (1−g)h + F; or h + gF."""

    none = "none"
    exclusive = "exclusive"
    shortcut_only = "shortcut_only"
    branch_only = "branch_only"


class Drop(StrEnum):
    """Stochastic depth: the same survival for every block, or falling linearly from 1 to ``survival`` at the last."""

    none = "none"
    constant = "constant"
    linear = "linear"


class DropUnit(StrEnum):
    """Whether a whole batch, or each sample, keeps or loses a branch."""

    batch = "batch"
    sample = "sample"


class DropScaling(StrEnum):
    """Where the survival p is made up for: F/p in training (timm), or p·F in evaluation (Huang 2016)."""

    train = "train"
    eval = "eval"


class Merge(StrEnum):
    """How branch and trunk meet: added, or concatenated and brought back to width (a control, not a residual form)."""

    add = "add"
    concat = "concat"


class ZeroInit(StrEnum):
    """What of a branch starts at 0: nothing, the scale of its last norm, or its last weight."""

    none = "none"
    norm_scale = "norm_scale"
    last_weight = "last_weight"


class Recipe(StrEnum):
    """Connections that come with rules of init, scale or learning rate of their own."""

    none = "none"
    fixup = "fixup"
    deepnorm = "deepnorm"
    layernorm_scaling = "layernorm_scaling"
    depth_mup = "depth_mup"


class Precision(StrEnum):
    """What numbers a network computes in; weights, gradients, optimizer and norm statistics are float32 always.

    tf32 rounds the factors of products and convolutions to 10 bits (CUDA only). bf16 and fp16 are torch's autocast:
    products, convolutions and what follows them in 8 or 11 significant bits; fp16 with a scaled loss (CUDA only).
    """

    float32 = "float32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


class Compile(StrEnum):
    """What torch's compiler makes faster: nothing, or the blocks, with one compiled Block for every depth."""

    off = "off"
    blocks = "blocks"


class OptimizerName(StrEnum):
    """Update rules, both torch's own, stepping on flat storage."""

    sgd = "sgd"
    adamw = "adamw"


class DecayRule(StrEnum):
    """Which parameters weight decay acts on: everything as in He 2015, or weight matrices and filters only."""

    all = "all"
    matrices = "matrices"


class ScheduleName(StrEnum):
    """Learning-rate schedules, counted in steps."""

    constant = "constant"
    cosine = "cosine"
    step = "step"


class TrackerName(StrEnum):
    """Sinks beside the run's own files."""

    none = "none"
    wandb = "wandb"


class TrackerMode(StrEnum):
    """``auto``: WANDB_MODE if set, else online when logged in, else offline. Never prompts."""

    auto = "auto"
    online = "online"
    offline = "offline"
