"""The table of keys in docs/sgd_block.md is that of the package."""

from pathlib import Path

from cntkjax.sgd.keys import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "sgd_block.md"


def table():
    rows = ["| key | default | effect | in Python |", "|---|---|---|---|"]
    for key in KEYS:
        default = "" if key.default is None else f"`{key.default}`"
        rows.append(f"| {'.'.join([*key.section, f'**{key.name}**'])} | {default} | {key.effect} | {key.python} |")
    return "\n".join(rows)


def test_the_page_has_every_key():
    assert table() in PAGE.read_text()


ISSUE = """modelPath trainCriterionNodeName evalCriterionNodeName epochSize minibatchSize maxEpochs truncated
        dropoutRate maxTempMemSizeInSamplesForCNN keepCheckPointFiles saveBestModelPerCriterion disableWkInBatchNormal
        learningRatesPerSample
        learningRatesPerMB minLearningRatePerSample momentumAsTimeConstant momentumPerMB useNAG autoAdjustLR
        reduceLearnRateIfImproveLessThan continueReduce learnRateDecreaseFactor
        increaseLearnRateIfImproveMoreThan learnRateIncreaseFactor loadBestModel learnRateAdjustInterval
        useCVSetControlLRIfCVExists useEvalCriterionControlLR numMiniBatch4LRSearch numSamples4Search numPrevLearnRates
        numBestSearchEpoch autoAdjustMinibatch minibatchSizeTuningFrequency minibatchSizeTuningMax
        minibatchSearchCriterionErrorMargin
        usePipeline adjustCoefficient adjustNBMiniBatch
        parallelizationMethod parallelizationStartEpoch distributedMBReading syncPerfStats gradientBits
        useBufferedAsyncGradientAggregation blockSize blockMomentumAsTimeConstant resetSGDMomentum
        useNesterovMomentum blockLearningRate gradientClippingWithTruncation clippingThresholdPerSample L2RegWeight
        L1RegWeight gaussianNoiseInjectStd gradUpdateType normWithAveMultiplier rms_wgt_inc rms_wgt_dec rms_wgt_max
        rms_wgt_min rms_gamma traceLevel firstMBsToShowResult numMBsToShowResult numMBsToCUDAProfile
        useAllDataForPreComputedNode gradientCheck sigFigs"""


def test_every_key_of_the_issue_has_a_row():
    assert sorted(ISSUE.split()) == sorted({key.name for key in KEYS})
