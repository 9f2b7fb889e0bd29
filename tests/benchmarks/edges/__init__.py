"""Whether exact edges keep the words and end the speech where they say, judged by two models that are not ours."""
