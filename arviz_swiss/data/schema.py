"""Every group, variable and attribute by which batches and merged objects speak, named once.

The constants are what the rest of the package writes; `GROUPS`, `VARIABLES` and `ATTRIBUTES` say
what each of them means, and the page "what is in the result" is made from them.
"""

# Groups of a merged object.
POSTERIOR = "posterior"
SAMPLE_STATS = "sample_stats"
OBSERVED_DATA = "observed_data"
CONSTANT_DATA = "constant_data"
PRIOR = "prior"
TRANSFORM = "swiss_transform"
DIAGNOSTICS = "swiss_diagnostics"
LOCAL_MAPS = "swiss_local"
CERTIFICATE = "swiss_certificate"
SITES = "swiss_sites"
REDRAWN = "swiss_redrawn"
PRODUCT = "swiss_product"
REWEIGHED = "swiss_reweighed"
PILOT = "swiss_pilot"
RUN = "swiss_run"
UNCONSTRAINED = "unconstrained_"
# Groups of what `moments` and `plan` return, and of their files.
MOMENTS = "swiss_moments"
PLAN = "swiss_plan"
# What files that hold no draws are, by the group that tells it.
SENT = {PLAN: "a plan", MOMENTS: "moments"}
VARIABLES_OF_DRAWS = "swiss_variables"
VARIABLES_OF_MERGE = "swiss_merge_variables"
PRIOR_DRAWS = "swiss_prior"
# Begins every name of ours.
PREFIX = "swiss_"

# Attributes of a batch's draws, by which `merge` knows what it was sampled from.
BATCH = "swiss_batch"
SIZE = "swiss_size"
KIND = "swiss_kind"
POWER = "swiss_power"
PRIOR_POWER = "swiss_prior_power"
LOCAL = "swiss_local"
TRANSFORMED = "swiss_transformed"
UNTRANSFORMED = "swiss_untransformed"
RANDOM_SEED = "swiss_random_seed"
PARTITION = "swiss_partition"
DATA = "swiss_data"
GROUPS_BY = "swiss_groups"
STRATIFY_BY = "swiss_stratify"
SHARED = "swiss_shared"
ROWS = "swiss_rows"
SETTINGS = "swiss_settings"
VERSION = "swiss_version"
PYMC_VERSION = "swiss_pymc_version"
SAMPLED_VARIABLES = "sampled_variables"
FULL_WARMUP = "swiss_full_warmup"
OBSERVED = "swiss_observed"

# Attributes of merged draws.
METHOD = "swiss_method"
TRANSFORMS = "swiss_transforms"
SPACE = "swiss_space"
RESCALED = "swiss_rescaled"
LEFT_OUT = "swiss_left_out"
UNORDERED = "swiss_unordered"
DROPPED = "swiss_dropped"
STANDS_FOR = "swiss_stands_for"
RESAMPLED = "swiss_resampled"

# Attributes of `swiss_transform` and of `swiss_local`.
COVARIANCE_ESTIMATOR = "swiss_covariance"
KIND_FROM = "swiss_kind_from"
REFINE_FLAG = "swiss_refine_flag"
REFINE_DOUBT = "swiss_refine_doubt"
REFINE_REMEDY = "swiss_refine_remedy"
THROUGH = "swiss_through"

# Attributes of `swiss_certificate`.
STATUS = "status"
REASON = "reason"
REMEDY = "remedy"

# Attribute of `swiss_pilot`.
HOW = "how"

# Attributes of `swiss_run`.
RULE = "rule"
PLAIN = "plain"
RESAMPLED_BATCHES = "with_full_warmup"
SKIPPED = "skipped"

# Attributes of `swiss_moments` and `swiss_plan`.
FORMAT = "swiss_format"
RECORD = "swiss_record"

# Dimensions of `swiss_transform` along which it holds the labels of all elements that were merged.
ELEMENT = "swiss_element"
UNCONSTRAINED_ELEMENT = "swiss_unconstrained_element"

# Variable of `sample_stats` that `certify` adds, where ArviZ's maintainers would have weights of
# draws (arviz-devs/arviz#2035).
LOG_WEIGHT = "log_weight"

# What belongs to one batch, which a merged object does not inherit from the first.
BATCH_ATTRS = (
    BATCH,
    SIZE,
    POWER,
    PRIOR_POWER,
    SETTINGS,
    VERSION,
    PYMC_VERSION,
    FULL_WARMUP,
    OBSERVED,
)
# What a merge says of itself, which neither its batches nor a merge of merged ones inherit.
MERGE_ATTRS = (
    METHOD,
    TRANSFORMS,
    SPACE,
    RESCALED,
    LEFT_OUT,
    UNORDERED,
    DROPPED,
    STANDS_FOR,
    RESAMPLED,
)
REFINE_ATTRS = (REFINE_FLAG, REFINE_DOUBT, REFINE_REMEDY)


def unconstrained(group: str) -> str:
    """Return the group that holds transformed variables of `group` in the space of the merge."""
    return f"{UNCONSTRAINED}{group}"


def owner_coord(dim: str) -> str:
    """Return the coordinate that tells the batch of each element along `dim`."""
    return f"batch_{dim}"


def own_coord(dim: str) -> str:
    """Return the coordinate that holds the batches' own labels along `dim`, where they repeat."""
    return f"own_{dim}"


# Groups and attributes of files that `moments` and `plan` save.
FILE_GROUPS = {
    MOMENTS: "The mean, covariance and shape of one batch's draws, and how well they are known.",
    PLAN: "Which chains of the merged object each batch makes, and constants of it.",
    VARIABLES_OF_DRAWS: "Names, dimensions and labels of the draws, without values.",
    VARIABLES_OF_MERGE: "Likewise, in the space of the merge.",
    PRIOR_DRAWS: "Draws of the prior, which the kind `full_prior` takes out.",
}
FILE_ATTRIBUTES = {
    FORMAT: "The version of the file's format.",
    RECORD: "All that is no array, as JSON.",
}

GROUPS = {
    POSTERIOR: (
        "Merged draws, chains of all batches end to end; the coordinate `batch` on `chain` tells "
        "each chain's batch. Newly made draws have no `batch`."
    ),
    UNCONSTRAINED + POSTERIOR: "Transformed variables, in the space of the merge.",
    SAMPLE_STATS: (
        "The samplers' statistics that all batches have, but for those of moved draws; weights, "
        "where `certify` gave each draw one."
    ),
    OBSERVED_DATA: "The batches' data joined, where their rows have labels.",
    CONSTANT_DATA: "Likewise.",
    TRANSFORM: "What was done to each batch, enough to undo it, and what `refine` did since.",
    DIAGNOSTICS: "What the batches' moments tell about the merge.",
    LOCAL_MAPS: "How variables of one batch alone were moved, and whose each element is.",
    SITES: "What each batch says of the shared parameters, where `refine` sampled batches anew.",
    REDRAWN: "Of draws that `refine` made anew by the exact density of the shared parameters.",
    PRODUCT: "Of draws by Gaussian processes: the density that they are of, and its error.",
    REWEIGHED: "How good the weights were by which `reweigh` drew.",
    PILOT: "The Gaussian that `sample` began with, in the space of the merge.",
    RUN: "How `sample` went: what it chose, and how long its stages took.",
    CERTIFICATE: "Weights of the draws against the full posterior, and the verdict.",
}

# What a batch's draws have beside attributes that the merged ones take over from them.
BATCH_ATTRIBUTES = {
    BATCH: "The batch's label.",
    SIZE: "Number of its rows.",
    POWER: "Power of its likelihood.",
    PRIOR_POWER: "Power of the prior in it.",
    TRANSFORMED: "Variables whose prior was powered in unconstrained space, as JSON.",
    UNTRANSFORMED: "Variables whose prior was powered on their own scale, as JSON.",
    SETTINGS: "How it was sampled, as JSON.",
    VERSION: "Version of arviz_swiss that sampled it.",
    PYMC_VERSION: "Version of PyMC.",
    FULL_WARMUP: "There if whitened chains were no use, and it was sampled with a full warm-up.",
    OBSERVED: "Count, mean and sd of what it observes, as JSON, if it does not hold its rows.",
}

ATTRIBUTES = {
    POSTERIOR: {
        METHOD: "How the batches were merged.",
        KIND: "What batches were sampled from: inflated, fractionated, full_prior or tilted.",
        SPACE: 'Where variables were merged: "model" or "transforms".',
        TRANSFORMS: "The transforms of the merge by variable, as JSON.",
        RESCALED: "From which kind to which the draws were rescaled for the method.",
        LOCAL: "Variables that each batch has its own of, with commas.",
        LEFT_OUT: "What of the batches is not in the merged object.",
        UNORDERED: "Dimensions whose order in the full data is not known.",
        DROPPED: "Batches that were left out.",
        STANDS_FOR: "What the merged posterior stands for after that.",
        RANDOM_SEED: "Seed of the partition, as text.",
        PARTITION: "Fingerprint of the rows of all batches.",
        DATA: "Fingerprint of the data that were divided.",
        GROUPS_BY: "The column whose groups were kept together, if it was given by name.",
        STRATIFY_BY: "The column that was spread evenly, if it was given by name.",
        SHARED: "Columns whose levels in all rows every batch was told, as JSON.",
        ROWS: "The folder of the run, where the rows of each batch are in a file.",
        RESAMPLED: "The verdict under which `resample` drew.",
    },
    TRANSFORM: {
        COVARIANCE_ESTIMATOR: "How the batches' covariances were estimated.",
        KIND_FROM: "Where the kind was read: argument, attributes, powers or guess.",
        REFINE_FLAG: "A word for what speaks against the last rounds of `refine`, if any.",
        REFINE_DOUBT: "The same as a sentence.",
        REFINE_REMEDY: "What to do about it.",
    },
    PILOT: {HOW: 'How it was found, such as "Laplace".'},
    RUN: {
        RULE: "How many batches and draws, and why.",
        PLAIN: "Why batches were not whitened by a pilot, if they were not.",
        RESAMPLED_BATCHES: "Batches whose whitened chains were no use, with commas.",
        SKIPPED: "Why the merge was neither refined nor certified, if it was not.",
    },
    LOCAL_MAPS: {THROUGH: "Variables that others were moved as, by variable, as JSON."},
    CERTIFICATE: {
        STATUS: '"certified", "usable" or "not certified".',
        REASON: "Why.",
        REMEDY: "What to do, if anything.",
    },
}

VARIABLES = {
    SAMPLE_STATS: {
        LOG_WEIGHT: "Pareto-smoothed log importance weight of each merged draw; their exponentials "
        "sum to 1. There if `certify` weighed all draws, and they are certified or usable.",
    },
    TRANSFORM: {
        ELEMENT: "Labels of all elements that were merged, in the order of the merge.",
        UNCONSTRAINED_ELEMENT: "The same of the transformed variables in the space of the merge.",
        "mean": "Mean of the batch's draws.",
        "covariance": "Their covariance.",
        "power": "Power of the batch's likelihood.",
        "prior_power": "Power of the prior in the batch.",
        "draws": "Number of the batch's draws.",
        "size": "Number of the batch's rows, where known.",
        "observed_summary": "Count, mean and sd of the batch's observed values.",
        "stands_for": "Rows that the merged posterior stands for over rows that it has seen.",
        "pooled_mean": "Mean of the merged posterior.",
        "pooled_covariance": "Its covariance.",
        "scale": "Matrix of the batch's map: draw -> scale (draw - mean) + target.",
        "target": "Where the map sends the batch's mean.",
        "round_mean": "Mean after each round of `refine`; round 0 is the merge.",
        "round_covariance": "Covariance after each round.",
        "step": "How far the round moved the mean, in posterior sds.",
        "step_error": "Monte Carlo error of that.",
        "eigenvalue_range": "Range of the new precision's eigenvalues seen from the old.",
        "taken": "Whether the round moved the draws: one that led away was undone.",
    },
    DIAGNOSTICS: {
        "q": "heterogeneity of the batch means, chi-squared under a random partition",
        "q_fair": "q, allowing for the bias of few draws",
        "q_df": "degrees of freedom of q",
        "q_pvalue": "p-value of q, allowing for the bias of few draws",
        "q_lower_pvalue": "p-value of a q as small as this, allowing for the bias of few draws",
        "expected_error": "order of the merged mean's error in posterior sds, of inflated batches",
        "prior_error": "order of the error in posterior sds that the prior's shape makes",
        "batch_q": "squared distance of the batch mean from the merged one, chi-squared",
        "batch_q_pvalue": "p-value of batch_q, allowing for the bias of few draws",
        "shift": "batch mean minus merged mean, in merged sds",
        "sd_ratio": "batch sd over merged sd",
        "displacement": "mean squared distance that the map moves whitened centred draws",
        "eigenvalue_min": "smallest eigenvalue of the map",
        "eigenvalue_max": "largest eigenvalue of the map",
        "influence": "Mahalanobis distance that the merged mean moves if the batch is left out",
        "effective_size": "effective size of the squared draws (estimated)",
        "precision_bias": "share by which few draws make the batch's sds too small in the pooling",
    },
    SITES: {
        "precision": "Precision of the Gaussian factor that stands for the batch; all sum up to "
        "the pooled one.",
        "shift": "That precision times the factor's mean, seen from the pooled mean: sums to zero.",
        "cavity_mean": "Pooled mean when the batches were sampled last.",
        "cavity_precision": "Precision of what the others said of the parameters to each batch.",
        "cavity_shift": "That precision times its mean, seen from `cavity_mean`.",
        "skewness": "What the batches' scores tell of the skewness of each parameter.",
        "skewness_error": "Monte Carlo error of that.",
    },
    REDRAWN: {
        "log_density": "Log density of the shared parameters at each draw, up to a constant.",
        "khat": "Pareto k-hat of the weights by which draws were resampled.",
        "effective_size": "Equally weighted draws that the weighted ones were worth.",
        "proposed": "How many were weighed.",
        "reshaped": "Parameters whose posterior is far from Gaussian.",
    },
    PRODUCT: {
        "log_density": "Log density of the interpolated product at each draw, up to a constant.",
        "fit_error": "What the batch's log density is off by near the product, root mean square.",
    },
    REWEIGHED: {
        "khat": "Pareto k-hat of the weights.",
        "effective_size": "Equally weighted draws that the weighed ones are worth.",
        "weighed": "How many were weighed.",
        "laplace": "How many of them are of the Gaussian at the mode.",
        "laplace_share": "The share of the weights that these have.",
        "overlap_error": "Error of the log weights from how little the sources overlap.",
    },
    PILOT: {
        "mean": "Mean of the Gaussian.",
        "covariance": "Its covariance.",
    },
    RUN: {
        "seconds": "What each stage took on the clock.",
        "cpu_seconds": "What it took of the processor, in this process.",
    },
    CERTIFICATE: {
        "log_weight": "Pareto-smoothed log importance weights; their exponentials sum to 1",
        "log_ratio": "log ratio of full posterior and merged density; the ratios have mean 1",
        "khat": "Pareto k-hat of all draws' weights",
        "batch_khat": "Pareto k-hat of each batch's draws against the full posterior, on their own",
        "batch_offset": "about how many sds a batch's draws are off the density given for it",
        "batch_width": "about how many times as wide a batch's draws are as its density",
        "effective_size": "equally weighted draws that the weighted draws are worth",
        "mean": "weighted posterior mean",
        "sd": "weighted posterior standard deviation",
        "mean_shift": "weighted minus unweighted mean, in unweighted sds",
        "sd_shift": "weighted minus unweighted sd, in unweighted sds",
        "mahalanobis_shift": "Mahalanobis length of the weighted minus the unweighted mean",
        "mahalanobis_error": "root mean square of that length by Monte Carlo error alone",
        "weighed": "number of draws that were weighed",
        "covariance_change": "largest relative change of an sd by the weights, in any direction",
        "covariance_error": "what Monte Carlo error alone makes of that change, in 1 of 20 cases",
        "overlap_error": "error of the log weights from how little the batches overlap",
        "group_khat": "largest Pareto k-hat of a batch's integrals over the variables of one group",
        "integral_noise": "root mean square noise that the integrals leave in the log weights",
        "pilot_khat": "Pareto k-hat of draws of the pilot's Gaussian alone, if there is one",
        "pilot_effective_size": "equally weighted draws that these are worth",
        "pilot_draws": "how many of them were weighed",
    },
}
